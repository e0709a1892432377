/* A wall clock that jumps on demand: preloaded (LD_PRELOAD) before a process under test.
 *
 * The file $SHIFTED_CLOCK holds one native 64-bit integer: the seconds to add to the wall clock. It is mapped, so the parent
 * changes it at any moment. The monotonic clocks stay as they are. A process without that variable has the clock as it is,
 * until it sets the variable.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *, void *);

__attribute__((constructor)) static void find_real(void)
{
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
}

static int64_t seconds(void)
{
    if (shift == NULL) {
        const char *name = getenv("SHIFTED_CLOCK");
        if (name == NULL)
            return 0;
        int file = open(name, O_RDONLY | O_CLOEXEC);
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED)
            abort();
        close(file);
        shift = mapped;
    }
    return *shift;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = real_clock_gettime(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += seconds();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int result = real_gettimeofday(now, zone);
    if (result == 0)
        now->tv_sec += seconds();
    return result;
}

time_t time(time_t *now)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now != NULL)
        *now = found.tv_sec;
    return found.tv_sec;
}
