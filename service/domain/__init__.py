"""The rules of campaigns, money and decisions: no SQL, no thread, no clock."""
