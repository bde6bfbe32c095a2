/* The disk's own commit rate: pwrite + fdatasync in a loop over a file that is already written.
 *
 * usage: disk_probe FILE BYTES_PER_SYNC SECONDS
 * prints: syncs seconds p50_us p99_us cpu_wait_seconds
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 64 << 20, LATENCIES_MAX = 1 << 20 };

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Blocks already written need no extent change on a sync: what a log with recycled files also enjoys. */
static void write_once(int fd) {
    static char zeros[1 << 20];
    struct stat status;
    if (fstat(fd, &status) == 0 && status.st_size >= FILE_BYTES) return;
    for (off_t at = 0; at < FILE_BYTES; at += sizeof zeros)
        if (pwrite(fd, zeros, sizeof zeros, at) != sizeof zeros) die("fill");
    if (fsync(fd) != 0) die("fsync");
}

/* How long this process was ready to run but had no CPU: then it is not the disk that was measured. */
static double cpu_wait_seconds(void) {
    unsigned long long ran_ns, waited_ns = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (file == NULL || fscanf(file, "%llu %llu", &ran_ns, &waited_ns) != 2) die("schedstat");
    fclose(file);
    return waited_ns / 1e9;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: disk_probe FILE BYTES_PER_SYNC SECONDS\n");
        return 2;
    }
    size_t bytes = strtoul(argv[2], NULL, 10);
    double seconds = atof(argv[3]);
    if (bytes == 0 || bytes > FILE_BYTES) {
        fprintf(stderr, "BYTES_PER_SYNC must lie in 1..%d\n", FILE_BYTES);
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0) die(argv[1]);
    write_once(fd);

    char *record = malloc(bytes);
    float *latencies = malloc(LATENCIES_MAX * sizeof *latencies);
    if (record == NULL || latencies == NULL) die("malloc");
    memset(record, 'x', bytes);

    long syncs = 0;
    off_t at = 0;
    double waited_before = cpu_wait_seconds();
    double start = now(), before = start, after = start;
    while (after - start < seconds && syncs < LATENCIES_MAX) {
        if (at + (off_t)bytes > FILE_BYTES) at = 0;
        if (pwrite(fd, record, bytes, at) != (ssize_t)bytes) die("pwrite");
        if (fdatasync(fd) != 0) die("fdatasync");
        at += bytes;
        after = now();
        latencies[syncs++] = (float)(after - before);
        before = after;
    }
    double waited = cpu_wait_seconds() - waited_before;
    qsort(latencies, syncs, sizeof *latencies, ascending);
    float p50 = latencies[syncs / 2], p99 = latencies[syncs * 99 / 100];
    printf("%ld %.6f %.1f %.1f %.6f\n", syncs, after - start, p50 * 1e6, p99 * 1e6, waited);
    return 0;
}
