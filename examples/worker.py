"""As worker.c, by the module sysv_ipc (Debian: python3-sysv-ipc)."""

import sysv_ipc

QUEUE, TASK, RESULT = 0x7461736B, 1, 2

queue = sysv_ipc.MessageQueue(QUEUE, sysv_ipc.IPC_CREAT, mode=0o600)
done = 0
while (task := queue.receive(type=TASK)[0]) != b"end":
    queue.send(str(int(task) ** 2).encode(), type=RESULT)
    done += 1
print(f"Python: {done} tasks")
