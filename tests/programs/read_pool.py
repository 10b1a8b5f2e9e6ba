"""Read a pool by docs/layout.md alone and check that it holds what perl/layout.pl put there.

usage: read_pool.py POOL PID SEGMENT SET QUEUE (the ids that layout.pl printed)

Nothing here is shared with the library, so that the page can't differ from the code unnoticed.
"""

import struct
import sys
import uuid

PAGE, BLOCK = 4096, 256
LINK = 2**28 - 1
KINDS = ("segments", "sets", "queues")
ENTRY_SIZES = {"segments": 128, "sets": 192, "queues": 256}


def check(what, got, expected):
    """Ends the program if something is not as it should be."""
    if got != expected:
        sys.exit(f"{what}: expected {expected!r}, got {got!r}")


class Pool:
    """A copy of a pool's bytes, and where its tables are."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        check("magic", self.bytes[:8], b"VSHMEM\x01\n")
        check("version and features", struct.unpack_from("<IIII", self.bytes, 8), (5, 0, 1, 0))
        made = uuid.UUID(bytes=self.bytes[320:336])
        check("UUID", (made.version, made.variant), (4, uuid.RFC_4122))
        check("size", self.u64(24), len(self.bytes))
        geometry = struct.unpack_from("<24Q", self.bytes, 32)
        names = ("members", "procs", "waiters", *KINDS, *(f"{kind} buckets" for kind in KINDS))
        self.tables = {name: geometry[2 * i : 2 * i + 2] for i, name in enumerate(names)}
        self.heaps = {"small": geometry[18:21], "pages": geometry[21:24]}
        limits = struct.unpack_from("<12Q", self.bytes, 224)
        check("msgmax <= msgmnb", limits[7] <= limits[8], True)

    def u64(self, offset):
        return struct.unpack_from("<Q", self.bytes, offset)[0]

    def u32(self, offset):
        return struct.unpack_from("<I", self.bytes, offset)[0]

    def i64(self, offset):
        return struct.unpack_from("<q", self.bytes, offset)[0]

    def find_key(self, kind, key):
        """The offset of the entry of a key, through the hash table."""
        offset, buckets = self.tables[f"{kind} buckets"]
        key &= 0xFFFFFFFF
        bucket = ((key * 0x9E3779B97F4A7C15) % 2**64 >> 32) & (buckets - 1)
        link = self.u64(offset + bucket * 8)
        while link:
            entry = self.tables[kind][0] + (link - 1) * ENTRY_SIZES[kind]
            if self.u32(entry + 24) == key:
                return entry
            link = self.u64(entry + 32)
        sys.exit(f"no entry of {kind} has the key {key:#x}")

    def check_head(self, kind, entry, given):
        """An entry's id, its index and sequence number, mode and owner."""
        (number,) = struct.unpack_from("<I", self.bytes, entry)
        check(f"{kind}: id", number, given)
        check(f"{kind}: bit of Vshmem's ids", number >> 30, 1)
        index = (entry - self.tables[kind][0]) // ENTRY_SIZES[kind]
        check(f"{kind}: index", number & 0x1FFFF, index)
        flags = self.u32(entry + 28)
        check(f"{kind}: sequence number", flags >> 8 & 0x1FFF, number >> 17 & 0x1FFF)
        check(f"{kind}: dying", flags & 1, 0)
        owner = struct.unpack_from("<4I", self.bytes, entry + 8)
        check(f"{kind}: owner and creator", owner[:2], owner[2:])

    def slot_of(self, pid):
        """The process slot in use that has this pid, and its generation."""
        offset, count = self.tables["procs"]
        for slot in range(count):
            ident = self.u64(offset + slot * 128)
            if ident & 0xFFFFFFFF == 1 and self.u32(offset + slot * 128 + 8) == pid:
                member = ident >> 32 & 0xFFFF
                members = self.tables["members"][0]
                check("the member's state", self.u32(members + member * 64), 2)
                return slot, ident >> 48
        sys.exit(f"no process slot has the pid {pid}")

    def check_pid_word(self, name, word, pid):
        """A pid with the name spaces in which it holds, as its process slot has them."""
        offset, _ = self.tables["procs"]
        slot, _ = self.slot_of(pid)
        spaces = self.u64(offset + slot * 128 + 16) >> 32
        check(name, (self.u64(word) >> 32, self.u64(word) & 0x3FFFFF), (spaces, pid))

    def check_segment(self, entry, pid, owner):
        first, pages, size = struct.unpack_from("<3Q", self.bytes, entry + 40)
        check("segment: pages and bytes", (pages, size), (2, 5000))
        base = self.heaps["pages"][1]
        at = base + first * PAGE
        content = self.bytes[at : at + pages * PAGE]
        check("segment: content", content, b"in the segment".rjust(24, b"\0").ljust(8192, b"\0"))
        check("segment: mode", self.u32(entry + 4), 0o640)
        self.check_pid_word("segment: creator", entry + 88, pid)
        self.check_pid_word("segment: last", entry + 96, pid)
        check("segment: attachments", self.u64(entry + 104), 2)
        record = self.u64(entry + 112)
        found = struct.unpack_from("<3Q", self.bytes, record)
        check("segment: attachment record", found, (owner, 0, 2))

    def check_set(self, entry, pid, slot, generation):
        count, cells = struct.unpack_from("<2Q", self.bytes, entry + 40)
        check("set: semaphores", count, 5)
        values = [struct.unpack_from("<HHI", self.bytes, cells + i * 16) for i in range(count)]
        check("set: values", [v[0] for v in values], [10, 20, 30, 38, 32767])
        check("set: slow", [v[1] & 1 for v in values], [0] * 5)
        check("set: pids", [v[2] & 0x3FFFFF for v in values], [pid] * 5)
        beside = [struct.unpack_from("<HHhH", self.bytes, cells + i * 16 + 8) for i in range(count)]
        nobody = (0, 0, 0, 0)
        mine = (slot + 1, generation, 2, 0)
        check("set: adjustments", beside, [nobody, nobody, nobody, mine, nobody])
        check(
            "set: undo records and waiters",
            struct.unpack_from("<3Q", self.bytes, entry + 72),
            (0, 0, 0),
        )

    def check_queue(self, entry, pid):
        _, ring, cells = struct.unpack_from("<3Q", self.bytes, entry + 40)
        tail, sent, sent_messages, _ = struct.unpack_from("<4I", self.bytes, entry + 64)
        head, received, received_messages, _ = struct.unpack_from("<4I", self.bytes, entry + 128)
        check("queue: bytes", (sent - received) % 2**32, 705)
        check("queue: messages", (sent_messages - received_messages) % 2**32, 3)
        self.check_pid_word("queue: last sender", entry + 64 + 32, pid)
        self.check_pid_word("queue: last receiver", entry + 128 + 32, pid)
        done, remembered = self.u64(entry + 128 + 40), self.u64(entry + 64 + 40)
        check("queue: done is at the head", done, head)
        check(
            "queue: the sender's copy of it is not ahead",
            (done - remembered) % 2**32 <= cells,
            True,
        )
        messages = []
        position = head
        while position != tail:
            top = ring + position % cells * 32
            mark = self.u64(top)
            check("queue: state", mark & 15, 2)
            check("queue: lap", mark >> 4 & 0xFFFFF, position // cells & 0xFFFFF)
            length = mark >> 24 & 0xFFFFFF
            texts = ring + cells * 32
            begin = position % cells * 64
            round_about = (
                self.bytes[texts + begin : texts + cells * 64] + self.bytes[texts : texts + begin]
            )
            text = self.bytes[top + 16 : top + 32] if length <= 16 else round_about
            messages.append((self.i64(top + 8), text[:length]))
            position = (position + max(1, -(-length // 64))) % 2**32
        check("queue: messages", messages, [(7, b"short"), (9, b"y" * 700), (8, b"")])

    def free_piece(self, table, block):
        """A free piece: its length, its neighbours of that length, its children."""
        words = [self.u64(table + (block + i) * 8) for i in range(3)]
        check("the first block of a free piece", words[0] >> 63, 1)
        length = words[0] >> 56 & 3 or words[2] & LINK
        last = self.u64(table + (block + length - 1) * 8)
        check("the last block of a free piece", last >> 62 & 1, 1)
        check("length in its last word", last >> 56 & 3 or last & LINK, length)
        children = (words[1] & LINK, words[1] >> 28 & LINK) if length > 1 else (0, 0)
        return length, words[0] & LINK, words[0] >> 28 & LINK, children

    def check_heap(self, name, trees):
        """Free pieces are exactly those that the trees lead to. Returns the blocks in use."""
        table, _, count = self.heaps[name]
        free = {}
        for order in range(28):
            ways = [(self.u64(trees + order * 8), order, 1)]
            while ways:
                link, bits, common = ways.pop()
                previous = 0
                while link:
                    length, following, before, children = self.free_piece(table, link - 1)
                    check(f"{name}: its place in the tree", length >> bits, common)
                    check(f"{name}: back link", before, previous)
                    if previous:
                        check(f"{name}: length in a list", length, free[previous - 1])
                    else:
                        below = enumerate(children)
                        ways += [(child, bits - 1, common << 1 | i) for i, child in below]
                    free[link - 1] = length
                    previous, link = link, following
        begins = [block for block in range(count) if self.u64(table + block * 8) >> 63]
        check(f"{name}: free pieces", begins, sorted(free))
        ends = [block + free[block] for block in begins]
        beside = [end for end in ends if end in free]
        check(f"{name}: free pieces side by side", beside, [])
        return count - sum(free.values())


def main():
    path, pid, *ids = sys.argv[1], *map(int, sys.argv[2:])
    pool = Pool(path)
    slot, generation = pool.slot_of(pid)
    owner = slot + 1 | generation << 32
    segment, semaphores, queue = (
        pool.find_key(kind, key) for kind, key in zip(KINDS, (0x1001, 0x1002, -0x1003), strict=True)
    )
    for kind, entry, given in zip(KINDS, (segment, semaphores, queue), ids, strict=True):
        pool.check_head(kind, entry, given)
    pool.check_segment(segment, pid, owner)
    pool.check_set(semaphores, pid, slot, generation)
    pool.check_queue(queue, pid)
    root = 1024
    counts = [struct.unpack_from("<5Q", pool.bytes, root + 24 + i * 40) for i in range(3)]
    check("in use", [c[2] for c in counts], [1, 1, 1])
    check("pages and semaphores in use", [c[4] for c in counts[:2]], [2, 5])
    check("the pool's lock", pool.u32(root), 0)
    check("the pool's redo log", pool.u64(4096), 0)
    check("pending pages", [pool.u64(root + 592 + i * 24) for i in range(32)], [0] * 32)
    # The small heap has the blocks before its end, and no page before it is free.
    (_, base, count), (_, first, _) = pool.heaps["small"], pool.heaps["pages"]
    end = pool.u64(root + 2576)
    before = (base + end * BLOCK - first) // PAGE
    check("the small heap ends with a page", base + end * BLOCK, first + before * PAGE)
    check("pages that are not free", pool.check_heap("pages", root + 144), before + 2)
    blocks = pool.check_heap("small", root + 368) - (count - end)
    # An attachment record; semaphores and their log; the queue's log; its ring.
    expected = (
        1 + -(-(5 * 16 + 16 + 31 * 16) // BLOCK) + -(-(16 + 24 * 16) // BLOCK) + 64 * 128 // BLOCK
    )
    check("small blocks that are not free", blocks, expected)
    print(f"{slot=} and {blocks} blocks as docs/layout.md says")


if __name__ == "__main__":
    main()
