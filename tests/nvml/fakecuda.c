/* A libcuda.so.1 for tests: its kernels keep GPU 0 of the fake NVML busy, and its process is listed there.
 * FAKECUDA_CODE=221: no compiler of PTX, as in a container without the `compute` capability. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int fakenvml_set(unsigned gpu, const char *name, double value); /* in libnvidia-ml.so.1 */

enum { KERNEL_US = 4000, REST_US = 10000, INVALID_VALUE = 1, NOT_FOUND = 500 };
static const char *text = "";
static volatile double ended_s;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void *rest(void *unused) {
    for (;; usleep(REST_US / 2))
        if (now_s() - ended_s > 1e-6 * REST_US) fakenvml_set(0, "busy", 0.0);
    return unused;
}
int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int room, int device) {
    (void)device;
    strncpy(name, "stand-in", (size_t)room);
    return 0;
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    pthread_t resting;
    (void)flags; (void)device;
    fakenvml_set(0, "own_pid", (double)getpid());
    *context = &text;
    return pthread_create(&resting, NULL, rest, NULL);
}
int cuCtxSetCurrent(void *context) { return context ? 0 : INVALID_VALUE; }
int cuModuleLoadDataEx(void **module, const char *ptx, unsigned n, void *names, void *values) {
    const char *code = getenv("FAKECUDA_CODE");
    (void)n; (void)names; (void)values;
    text = *module = (void *)ptx;
    return code ? atoi(code) : 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strstr(text, name) ? 0 : NOT_FOUND;
}
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) { *at = 4096; return bytes ? 0 : INVALID_VALUE; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **more) {
    (void)shared; (void)stream; (void)more;
    if (!function || !gx || !gy || !gz || !bx || !by || !bz || !arguments[1]) return INVALID_VALUE;
    ended_s = now_s() + 1e-6 * KERNEL_US;
    return fakenvml_set(0, "busy", 1.0);
}
int cuCtxSynchronize(void) { return usleep(KERNEL_US); }
int cuGetErrorString(int code, const char **into) {
    *into = code == 221 ? "JIT compiler not found" : "an error";
    return 0;
}
