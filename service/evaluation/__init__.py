"""What if: other policies and other budgets, asked of a campaign's log in a process of its own."""
