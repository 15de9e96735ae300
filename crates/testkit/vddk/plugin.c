/* A replacement for nbdkit's vddk plugin: it accepts the same arguments and prints the same messages. The file
 * config=FILE names the disk to serve and the expected arguments, in lines of name=value:
 *
 *   disk           path of a raw disk
 *   disk.SNAPSHOT  the same, if snapshot=SNAPSHOT is given
 *   reads          path of a file that gets a line for each read: offset and bytes
 *   pause          duration of each read in microseconds
 *   vixDiskLib.*   options of the library; these lines are printed, as the real plugin does
 *   any other      the expected value of an argument ("password": the expected password)
 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "disk.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define MAX_ARGUMENTS 32
#define MAX_LINE 1024

int vddk_debug_datapath = 1;
int vddk_debug_stats;

static struct { char *name, *value; } arguments[MAX_ARGUMENTS];
static int count;
static char disk[MAX_LINE];
static int reads = -1, pause_us;

static const char *argument(const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(arguments[i].name, name) == 0)
            return arguments[i].value;
    return NULL;
}

static int vddk_config(const char *name, const char *value)
{
    char *text = NULL;

    if (count == MAX_ARGUMENTS) {
        nbdkit_error("too many arguments");
        return -1;
    }
    if (strcmp(name, "password") == 0) {
        if (nbdkit_read_password(value, &text) == -1)
            return -1;
    } else {
        text = strdup(value);
    }
    arguments[count].name = strdup(name);
    arguments[count++].value = text;
    return 0;
}

static int vddk_config_complete(void)
{
    char line[MAX_LINE];
    const char *path = argument("config");
    const char *snapshot = argument("snapshot");
    int is_chosen = 0;
    FILE *file;

    if (path == NULL || (file = fopen(path, "r")) == NULL) {
        nbdkit_error("config=FILE: %m");
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, '=');
        line[strcspn(line, "\n")] = 0;
        if (value == NULL)
            continue;
        *value++ = 0;
        nbdkit_debug("config: %s=%s", line, value);
        if (strcmp(line, "disk") == 0) {
            if (!is_chosen)
                strcpy(disk, value);
        } else if (strncmp(line, "disk.", 5) == 0) {
            if (snapshot != NULL && strcmp(line + 5, snapshot) == 0) {
                strcpy(disk, value);
                is_chosen = 1;
            }
        } else if (strcmp(line, "reads") == 0) {
            reads = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        } else if (strcmp(line, "pause") == 0) {
            pause_us = atoi(value);
        } else if (strncasecmp(line, "vixDiskLib.", 11) == 0) {
            continue;
        } else if (argument(line) == NULL || strcmp(argument(line), value) != 0) {
            nbdkit_error("the argument %s is not what it should be", line);
            return -1;
        }
    }
    fclose(file);
    return 0;
}

static void *vddk_open(int readonly)
{
    int *fd;

    if (access(disk, R_OK) != 0) {
        nbdkit_error("VixDiskLib_Open: no disk");
        return NULL;
    }
    nbdkit_debug("VMware VixDiskLib (7.0.3) Release build-18705163");
    nbdkit_debug("DISKLIB-LINK  : Opened 'vpxa-nfcssl://%s@esx1.example.com:902' (0x1e): custom", argument("file"));
    nbdkit_debug("config key=password, value=%s", argument("password"));
    fd = malloc(sizeof *fd);
    *fd = open(disk, O_RDONLY);
    return fd;
}

static void vddk_close(void *handle)
{
    close(*(int *)handle);
    free(handle);
}

static int64_t vddk_get_size(void *handle)
{
    return size_of(*(int *)handle);
}

/* The largest read of VMware's library. */
static int vddk_pread(void *handle, void *buffer, uint32_t bytes, uint64_t offset, uint32_t flags)
{
    if (bytes > 2 << 20) {
        nbdkit_error("a read of %u bytes", bytes);
        return -1;
    }
    if (reads != -1)
        dprintf(reads, "%lu %u\n", (unsigned long)offset, bytes);
    if (pause_us > 0)
        usleep(pause_us);
    return read_disk(*(int *)handle, buffer, bytes, offset);
}

static int vddk_can_extents(void *handle)
{
    return 1;
}

static int vddk_extents(void *handle, uint32_t bytes, uint64_t offset, uint32_t flags, struct nbdkit_extents *extents)
{
    int fd = *(int *)handle;
    off_t end = offset + bytes, size = vddk_get_size(handle);

    if (end > size)
        end = size;
    for (off_t at = offset, next; at < end; at = next) {
        off_t data = lseek(fd, at, SEEK_DATA);
        int is_hole = data != at;
        if (is_hole)
            next = data == -1 ? size : data;
        else
            next = lseek(fd, at, SEEK_HOLE);
        if (nbdkit_add_extent(extents, at, next - at, is_hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0) == -1)
            return -1;
    }
    return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "vddk",
    .config = vddk_config,
    .config_complete = vddk_config_complete,
    .open = vddk_open,
    .close = vddk_close,
    .get_size = vddk_get_size,
    .pread = vddk_pread,
    .can_extents = vddk_can_extents,
    .extents = vddk_extents,
    .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN(plugin)
