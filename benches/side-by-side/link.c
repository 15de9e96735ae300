// A link between two network namespaces, for distance.py: packets between two TUN devices are delayed, paced and dropped.
// It replaces netem, which many kernels lack. Packets have 1500 bytes and are dropped one by one, as on the Internet.
//
// Usage: link NEAR FAR DELAY_US LOSS_PER_MILLION BITS_PER_SECOND. Prints a line once both devices exist.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

// SLOTS holds what 2 Gbit/s send in 200 ms. A router's buffer of 50 ms fills before it drops packets.
enum { MTU = 1500, SLOTS = 1 << 15, TICK_NS = 100000, BUFFER_NS = 50000000 };

struct packet {
    int64_t due;
    ssize_t length;
    char bytes[MTU];
};

struct direction {
    int from, to;
    unsigned first, end;
    int64_t free_at;
    struct packet *ring;
};

static int64_t delay_ns, bits_per_second;
static long loss_per_million;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_device(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (device < 0 || ioctl(device, TUNSETIFF, &request) < 0) fail(name);
    return device;
}

// Takes the packets that were sent, and delivers those that have arrived. The slot that is being read is not in the ring yet.
static void move_packets(struct direction *way) {
    while (way->end - way->first < SLOTS - 1) {
        struct packet *packet = &way->ring[way->end % SLOTS];
        packet->length = read(way->from, packet->bytes, MTU);
        if (packet->length <= 0) break;
        int64_t time = now(), begin = way->free_at > time ? way->free_at : time;
        if (begin - time > BUFFER_NS) continue;
        way->free_at = begin + packet->length * INT64_C(8000000000) / bits_per_second;
        packet->due = way->free_at + delay_ns;
        if (random() % 1000000 >= loss_per_million) way->end++;
    }
    for (int64_t time = now(); way->first != way->end; way->first++) {
        struct packet *packet = &way->ring[way->first % SLOTS];
        if (packet->due > time) break;
        // A device that is not up yet loses the packet.
        if (write(way->to, packet->bytes, packet->length) < 0) continue;
    }
}

int main(int count, char **words) {
    if (count != 6) return 2;
    int near = open_device(words[1]), far = open_device(words[2]);
    delay_ns = atoll(words[3]) * 1000;
    loss_per_million = atol(words[4]);
    bits_per_second = atoll(words[5]);
    struct direction ways[2] = {{.from = near, .to = far}, {.from = far, .to = near}};
    for (int way = 0; way < 2; way++)
        if (!(ways[way].ring = calloc(SLOTS, sizeof(struct packet)))) fail("memory");
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 15);
    puts("ready");
    fflush(stdout);
    for (;;) {
        move_packets(&ways[0]);
        move_packets(&ways[1]);
        if (ways[0].first == ways[0].end && ways[1].first == ways[1].end) {
            struct pollfd devices[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
            poll(devices, 2, -1);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        }
    }
}
