"""A simulated ad server that spends the budgets of one campaign through a real service, for people to watch."""
