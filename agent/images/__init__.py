"""Images: pulled by policy and credentials, remembered with what they were pulled with, collected when the disk is full."""
