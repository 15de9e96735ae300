/* A replacement for nbdkit's vddk plugin that is as simple as the one in CDI's image vddk-test: it accepts
 * any arguments and counts them, prints the options of config=FILE, and reports no holes. It serves
 * nbdtest.img, which lies beside it, through one descriptor that all connections share: when one connection
 * ends, the others lose the disk.
 */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "disk.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS

/* libdir, server, user, password, thumbprint, vm and file */
static int wanted = 7, given;
static int disk = -1;

static int bare_config(const char *name, const char *value)
{
    char line[512];
    FILE *options;

    given++;
    if (strcmp(name, "snapshot") == 0)
        wanted = 9; /* and transports */
    if (strcmp(name, "config") != 0)
        return 0;
    wanted = 8;
    options = fopen(value, "r");
    if (options == NULL) {
        nbdkit_error("%s: %m", value);
        return -1;
    }
    while (fgets(line, sizeof line, options) != NULL)
        nbdkit_debug("option: %s", line);
    fclose(options);
    return 0;
}

static int bare_config_complete(void)
{
    nbdkit_debug("VMware VixDiskLib (1.2.3) Release build-12345");
    if (given == wanted)
        return 0;
    nbdkit_error("%d arguments instead of %d", given, wanted);
    return -1;
}

static void *bare_open(int readonly)
{
    Dl_info plugin;
    char folder[PATH_MAX], path[PATH_MAX + 16];

    if (dladdr(&wanted, &plugin) == 0) {
        nbdkit_error("dladdr: %s", dlerror());
        return NULL;
    }
    snprintf(folder, sizeof folder, "%s", plugin.dli_fname);
    snprintf(path, sizeof path, "%s/nbdtest.img", dirname(folder));
    disk = open(path, O_RDONLY | O_CLOEXEC);
    if (disk == -1) {
        nbdkit_error("%s: %m", path);
        return NULL;
    }
    nbdkit_debug("DISKLIB-LINK  : Opened 'vpxa-nfcssl://[ds] vm/disk.vmdk@esx.test:902' (0xa): custom, 90112 sectors / 44 MB.");
    return &disk;
}

static void bare_close(void *handle)
{
    close(disk);
}

static int64_t bare_get_size(void *handle)
{
    return size_of(disk);
}

static int bare_pread(void *handle, void *buffer, uint32_t bytes, uint64_t offset, uint32_t flags)
{
    return read_disk(disk, buffer, bytes, offset);
}

static struct nbdkit_plugin plugin = {
    .name = "vddk",
    .config = bare_config,
    .config_complete = bare_config_complete,
    .open = bare_open,
    .close = bare_close,
    .get_size = bare_get_size,
    .pread = bare_pread,
};

NBDKIT_REGISTER_PLUGIN(plugin)
