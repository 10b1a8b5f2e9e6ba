"""Checks that what a command has printed with --json is what its schema says.

    schema.py DOCUMENT     as `vshmem schema DOCUMENT` calls it

Reads one or several documents from standard input. VSHMEM_BIN is the command. Says what is wrong,
and fails then.
"""

import json
import os
import subprocess
import sys

import jsonschema

schema = subprocess.run(
    [os.environ["VSHMEM_BIN"], "schema", sys.argv[1]], stdout=subprocess.PIPE, check=True
).stdout
validator = jsonschema.Draft202012Validator(json.loads(schema))
text = sys.stdin.read().strip()
if not text:
    sys.exit("there is no document")
failed = False
while text:
    document, end = json.JSONDecoder().raw_decode(text)
    text = text[end:].lstrip()
    for error in validator.iter_errors(document):
        print(f"{sys.argv[1]}: {error.json_path}: {error.message}", file=sys.stderr)
        failed = True
sys.exit(failed)
