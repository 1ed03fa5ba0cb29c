"""What users declare: tasks, kinds, functions, steps and their options, checked at decoration."""
