"""Serves the files of a directory by HTTP, as a mirror of images does; parts of them, too.

mirror.py DIRECTORY FILE

Writes its address into FILE. A file NAME.slow beside one has that one sent a bit at a time; a
line for each request is printed: path, and where the part begins.
"""

import http.server
import os
import sys
import time

directory, told = sys.argv[1:]


class Mirror(http.server.BaseHTTPRequestHandler):
    """Answers for one connection."""

    def do_GET(self):
        path = os.path.join(directory, os.path.basename(self.path))
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        print(self.path, begin, flush=True)
        try:
            with open(path, "rb") as file:
                size = os.stat(path).st_size
                file.seek(begin)
                self.send_response(206 if begin else 200)
                if begin:
                    self.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
                self.send_header("Content-Length", str(size - begin))
                self.end_headers()
                while some := file.read(65536):
                    self.wfile.write(some)
                    if os.path.exists(path + ".slow"):
                        time.sleep(0.2)
        except FileNotFoundError:
            self.send_error(404)
        except ConnectionError:
            pass

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
with open(told + ".new", "w") as file:
    file.write(f"http://127.0.0.1:{server.server_address[1]}")
os.rename(told + ".new", told)
server.serve_forever()
