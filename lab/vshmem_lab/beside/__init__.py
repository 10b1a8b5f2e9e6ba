"""Other tools beside `vshmem doctor`, on machines in which one thing at a time is planted."""
