/* Faults of single processes, in front of the C library (LD_PRELOAD), for bench/soak_preloaded.py: a wall clock that is set,
 * a monotonic clock that stood still while the machine was suspended, and a disk on which fsync fails with EIO.
 *
 * The file that PRELOADED_FAULTS names is mapped into memory: a change holds at once, everywhere. CLOCK_BOOTTIME stays as it
 * is. Deadlines that are handed to the kernel are moved back, since its clocks were not changed; a time of more than thirty
 * years is one by the wall clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define THIRTY_YEARS 946684800

struct faults {
    long long offset; /* of the wall clock, in nanoseconds */
    unsigned long long device; /* whose fsync fails, 0 for none */
    long long suspended; /* nanoseconds in which the monotonic clock stood still */
};

static const volatile struct faults none;
static const volatile struct faults *faults = &none;

#define NEXT(name) ((__typeof__(&name))next(&next_##name, #name))
static void *next_clock_gettime, *next_pthread_cond_timedwait, *next_pthread_cond_clockwait, *next_sem_clockwait;
static void *next_clock_nanosleep, *next_syscall, *next_fsync, *next_fdatasync;

static void *next(void **known, const char *name) {
    if (!*known) *known = dlsym(RTLD_NEXT, name);
    return *known;
}

__attribute__((constructor)) static void map_faults(void) {
    const char *path = getenv("PRELOADED_FAULTS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) faults = mapped;
    close(file);
}

static void move(struct timespec *at, long long by) {
    long long all = at->tv_sec * SECOND + at->tv_nsec + by;
    at->tv_sec = all / SECOND;
    at->tv_nsec = all % SECOND;
}

static const struct timespec *in_kernel(const struct timespec *deadline, struct timespec *moved) {
    if (!deadline || deadline->tv_sec > 8000000000LL) return deadline;
    *moved = *deadline;
    move(moved, deadline->tv_sec < THIRTY_YEARS ? faults->suspended : -faults->offset);
    return moved;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = NEXT(clock_gettime)(clock, at);
    if (result != 0) return result;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) move(at, faults->offset);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) move(at, -faults->suspended);
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
    struct timespec moved;
    return NEXT(pthread_cond_timedwait)(condition, mutex, in_kernel(deadline, &moved));
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *deadline) {
    struct timespec moved;
    return NEXT(pthread_cond_clockwait)(condition, mutex, clock, in_kernel(deadline, &moved));
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict deadline) {
    struct timespec moved;
    return NEXT(sem_clockwait)(semaphore, clock, in_kernel(deadline, &moved));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *deadline, struct timespec *left) {
    struct timespec moved;
    if ((flags & TIMER_ABSTIME) && (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)) {
        deadline = in_kernel(deadline, &moved);
    }
    return NEXT(clock_nanosleep)(clock, flags, deadline, left);
}

static int fails(int file) {
    unsigned long long device = faults->device;
    struct stat found;
    if (!device || fstat(file, &found) != 0 || found.st_dev != device) return 0;
    errno = EIO;
    return 1;
}

int fsync(int file) {
    return fails(file) ? -1 : NEXT(fsync)(file);
}

int fdatasync(int file) {
    return fails(file) ? -1 : NEXT(fdatasync)(file);
}

long syscall(long number, ...) {
    long a[6];
    struct timespec moved;
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_futex && ((a[1] & FUTEX_CLOCK_REALTIME) || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)) {
        a[3] = (long)in_kernel((const struct timespec *)a[3], &moved);
    }
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
