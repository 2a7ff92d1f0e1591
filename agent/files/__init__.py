"""Files and directories that pods control: walked by descriptors, through no links."""
