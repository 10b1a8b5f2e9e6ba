// SPDX-License-Identifier: GPL-2.0
/* What the driver for ivshmem has as well, compiled into this one. */
#include "../file.c"
#include "../pool.c"
#include "../sleep.c"
