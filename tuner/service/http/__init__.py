"""The tuner over HTTP: who is let in, what is asked, and what is answered."""
