"""wordcount.py TEXT PARTS: Spark counts the words of files, by so many tasks at a time.

TEXT is a directory that each executor sees. Prints "spark EXECUTORS", and "wordcount BYTES
NANOSECONDS ANSWER": the answer has each word and its count in it. What is timed is the job, without
the start of Spark.
"""

import sys
import time
import zlib
from operator import add
from pathlib import Path

from pyspark import SparkContext

text, parts = sys.argv[1], int(sys.argv[2])
context = SparkContext(appName="wordcount")
size = sum(file.stat().st_size for file in Path(text).iterdir())
begun = time.monotonic_ns()
words = context.textFile(f"file://{text}", parts).flatMap(str.split)
counted = words.map(lambda word: (word, 1)).reduceByKey(add, parts).collect()
took = time.monotonic_ns() - begun
print(f"spark {context._jsc.sc().getExecutorMemoryStatus().size() - 1}", flush=True)
answer = zlib.crc32(repr(sorted(counted)).encode())
print(f"wordcount {size} {took} {answer}", flush=True)
context.stop()
