"""The operator's log, carried to webhooks and mailboxes."""
