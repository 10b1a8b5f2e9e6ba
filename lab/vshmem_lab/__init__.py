"""Vshmem's lab: contenders measured in turns, with statistics, and reports of it."""
