/* What a developer compiles by the package libvshmem-dev. */
#include <linux/vshmem_ioctl.h>
#include <linux/vshmem_xen_ioctl.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <vshmem.h>

int main(void) {
    int id = vshm_semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    if (id < 0)
        return perror("vshm_semget"), 1;
    return vshm_semctl(id, 0, IPC_RMID) == 0 ? 0 : 1;
}
