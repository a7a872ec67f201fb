"""Notifications: events delivered to webhooks and mailboxes."""
