"""What readers are answered: infos, figures, visits, and the filter language."""
