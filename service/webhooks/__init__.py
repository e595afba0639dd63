"""Sends messages to webhooks: signed, with retries for a day, and to public addresses only."""
