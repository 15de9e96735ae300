/* What both replacements for nbdkit's vddk plugin need: its programming interface, and a disk in a file. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

static int64_t size_of(int disk)
{
    struct stat status;
    return fstat(disk, &status) == -1 ? -1 : status.st_size;
}

static int read_disk(int disk, void *buffer, uint32_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t count = pread(disk, buffer, bytes, offset);
        if (count <= 0) {
            nbdkit_error("pread: %m");
            return -1;
        }
        buffer = (char *)buffer + count;
        bytes -= count;
        offset += count;
    }
    return 0;
}
