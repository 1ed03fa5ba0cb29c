"""What commands are given: options, filters, ids, the App."""
