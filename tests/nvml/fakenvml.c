/* A stateful libnvidia-ml.so.1 for tests: GPUs that compute, warm up and count joules. README.md lists
 * what can be set of its state.
 *
 * The physics is that of agents/devices/simulated (a test holds the two to each other): a roofline
 * for the time of a batch, a * f * V(f)^2 for power, one thermal node. Its workload serves one batch
 * after another for ever. All state is in one file, shared by every process that maps it, so it
 * outlives a killed client as a driver's state does. FAKENVML_STATE names the file, FAKENVML_INIT
 * ("root_only=0 noise=0") what a new one starts with; fakenvml_set and fakenvml_get reach in later,
 * faults included. Time is the machine's, or what `manual_s` says where that is not 0.
 *
 * What the driver does not say in public is assumed here: requests outside the clock range are
 * clamped, and a change takes up to `delay_s` to show.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8
#define CHIPS_COUNT 2
#define CALLS 128
#define CALL_NAME 64
#define RING 16384
#define MAGIC 0x6a6c746e766d6c32ull
#define TICK_S 0.1
#define EPOCH_S 0.5
#define KEPT_PER_S 200.0
#define LONGEST_GAP_S 30.0

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
    NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18, UNKNOWN = 999
};
enum { IDLE = 0x1, SW_POWER_CAP = 0x4, SW_THERMAL = 0x20, HW_THERMAL = 0x40, POWER_BRAKE = 0x80 };
enum { RIGHT = 0, FROZEN = 1, BACKWARDS = 2, ABSENT = 3, HALF = 4 };

/* Figures of tests: those of agents/devices/simulated/presets.py. */
struct unit { double max_mhz, watts_per_mhz, waiting, threshold_mhz, per_mhz; };
struct chip {
    const char *name;
    struct unit gpu, mem, cpu;
    double idle_w, ambient_c, leak_w, leak_per_k, k_per_w, j_per_k, overlap, min_mhz, step_mhz;
    double compute, memory;                /* times an A100 */
    double limit_min_w, limit_max_w;
    unsigned mem_mhz[2], mem_count;
    int averaged;                          /* power is a mean over 1 s: Ampere except GA100 */
};
static const struct chip CHIPS[CHIPS_COUNT] = {
    { "NVIDIA A100-SXM4-40GB (fake)",
      { 1410, 0.0772, 0.4, 1055.0, 0.001256 }, { 1215, 0.00658, 0.4, INFINITY, 0 },
      { 2250, 0, 0, INFINITY, 0 }, 45.0, 30.0, 12.0, 0.008, 0.12, 180.0, 0.8, 210, 15, 1.0, 1.0,
      100, 400, { 1215 }, 1, 0 },
    { "NVIDIA A40 (fake)",
      { 1740, 0.08545, 0.35, 1478.0, 0.000745 }, { 7251, 0.00518, 0.4, INFINITY, 0 },
      { 2250, 0, 0, INFINITY, 0 }, 27.3, 30.0, 10.0, 0.008, 0.16, 140.0, 0.8, 210, 15, 2.0, 2.93,
      100, 300, { 7251, 405 }, 2, 1 },
};
static const struct chip *chip_of(int index) { return &CHIPS[index % CHIPS_COUNT]; }
/* resnet50 of the simulated device. */
static const double COMPUTE_FIXED_MS = 0.35, COMPUTE_MS = 0.42, MEMORY_FIXED_MS = 0.3;
static const double MEMORY_MS = 0.31, HOST_FIXED_MS = 0.5, HOST_MS = 0.05;
static const double SMOOTHING = 4.0;

struct gpu {
    /* what is asked for, and when it shows */
    double lock_min, lock_max, mem_lock, limit_w, due_s;
    /* what is in force */
    double clock_mhz, mem_mhz, cap_w, ran_mhz;
    /* the workload */
    double busy, batch, progress, items, step_ms;
    /* heat and energy */
    double celsius, energy_j, counter_j, power_w, tick_j[10], tick_from_j;
    double cap_s, sw_thermal_s, hw_thermal_s, brake_s;
    uint64_t ticks, kept, random;
    float latency_ms[RING];
    /* faults */
    double lost, refuse_mem, refuse_limit, refuse_clock, deaf, counter, mig, vgpu, mps_clients, foreign_pid, own_pid;
    double thermal_mhz, no_fields;
    /* what a board does by itself, and what others do to it */
    double reach_mhz, load, enforced_w, init_s, persistence, lose_locks;
    /* what is measured of it, and what of its processes is shown */
    double idle_ratio, load_ratio, module_w, no_gpu_scope, uma, no_processes, pid_offset;
    double profiles, requested_profiles, profile_conflicts;
};

/* What a call answers instead of doing anything, GPU by GPU; 0 where it does what it is to do. */
struct call { char name[CALL_NAME]; double code[GPUS]; };

struct state {
    uint64_t magic;
    double seed, now_s, manual_s, delay_s, noise, root_only, no_permission, hang, generation, unloaded;
    double gpus;
    struct gpu gpu[GPUS];
    struct call call[CALLS];
};

static struct state *S;
static int state_fd = -1;
static char state_path[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int clients;
static char initialised[GPUS];             /* the GPUs that this process has a handle of */
static double joined;                      /* the driver's generation this client began with */

/* ---- randomness: splitmix64, and a Gaussian from it ---- */
static double uniform(uint64_t *x) {
    uint64_t z = (*x += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return ((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}
static double gauss(uint64_t *x) {
    double u = uniform(x), v = uniform(x);
    return sqrt(-2.0 * log(u + 1e-300)) * cos(2.0 * M_PI * v);
}
/* The deviations of agents/devices/simulated/noise.py. */
static void epoch_noise(uint64_t index, double now, double *slower, double *hungrier) {
    uint64_t x = (uint64_t)S->seed * 7919u + (uint64_t)floor(now / EPOCH_S) * 104729u + index;
    uniform(&x);
    double g = gauss(&x), outlier = uniform(&x), h = gauss(&x);
    *slower = exp(S->noise * 0.015 * g);
    *hungrier = fmax(0.1, 1.0 + S->noise * (outlier < 0.01 ? 0.15 : 0.035) * h);
}
static double request_noise(struct gpu *g) {
    int hiccup = uniform(&g->random) < 0.002;
    double n = gauss(&g->random);
    return exp(S->noise * (hiccup ? 0.15 + 0.05 * n : 0.035 * n));
}

/* ---- physics ---- */
static double unit_w(const struct unit *u, double mhz, double busy) {
    double rise = mhz - u->threshold_mhz;
    double v = rise <= 0.0 ? 1.0 : 1.0 + u->per_mhz * rise;
    return u->watts_per_mhz * mhz * v * v * (u->waiting + (1.0 - u->waiting) * busy);
}
static double pace(const struct chip *c, const struct gpu *g, double mhz, double *watts) {
    double compute = c->compute * (COMPUTE_FIXED_MS + COMPUTE_MS * g->batch) * c->gpu.max_mhz / mhz;
    double memory = c->memory * (MEMORY_FIXED_MS + MEMORY_MS * g->batch) * c->mem.max_mhz / g->mem_mhz;
    double host = HOST_FIXED_MS + HOST_MS * g->batch, hidden = host * c->overlap;
    double step = pow(pow(compute, SMOOTHING) + pow(memory, SMOOTHING) + pow(hidden, SMOOTHING),
                      1.0 / SMOOTHING) + host - hidden;
    *watts = c->idle_w + unit_w(&c->gpu, mhz, compute / step) + unit_w(&c->mem, g->mem_mhz, memory / step);
    return step;
}
static double leakage_w(const struct chip *c, double celsius) {
    return c->leak_w * (1.0 + c->leak_per_k * (celsius - c->ambient_c));
}
/* The profiles in force of those requested. Of `profile_conflicts` only the lowest one is: it has the best
 * priority. Which profile excludes which on a board is not public. */
static unsigned arbitrated(const struct gpu *g) {
    unsigned requested = (unsigned)g->requested_profiles;
    unsigned rivals = requested & (unsigned)g->profile_conflicts;
    return (requested & ~rivals) | (rivals & -rivals);
}
/* The highest clock that the board reaches: below the highest that it lists (an RTX A6000 lists 2,100 MHz
 * and runs 1,935 at best), and at part load lower still, as its driver adapts; no reason bit says so. */
static double reached(const struct chip *c, const struct gpu *g) {
    double top = g->reach_mhz ? fmin(g->reach_mhz, c->gpu.max_mhz) : c->gpu.max_mhz;
    if (arbitrated(g) & 2u) top *= 0.8;    /* max-q, here; a profile's effects are not public either */
    return g->load < 1.0 ? c->min_mhz + g->load * (top - c->min_mhz) : top;
}
static int is_hot(const struct chip *c, const struct gpu *g) {
    return g->thermal_mhz && g->thermal_mhz < fmin(g->clock_mhz, reached(c, g));
}
/* The clock that the board goes to where power allows it. */
static double goal_mhz(const struct chip *c, const struct gpu *g) {
    double goal = fmin(g->clock_mhz, reached(c, g));
    return is_hot(c, g) ? g->thermal_mhz : goal;
}
/* Return the clock really run: lowered until the power limit is kept. */
static double capped(const struct chip *c, const struct gpu *g, double *watts, double *step) {
    double budget = g->cap_w - leakage_w(c, g->celsius), low = c->min_mhz, high = goal_mhz(c, g);
    *step = pace(c, g, high, watts);
    if (*watts <= budget) return high;
    for (int i = 0; i < 24; i++) {
        double middle = (low + high) / 2.0;
        pace(c, g, middle, watts);
        if (*watts <= budget) low = middle; else high = middle;
    }
    *step = pace(c, g, low, watts);
    return low;
}
static double warm(const struct chip *c, struct gpu *g, double watts, double seconds, int leaking) {
    double slope = leaking ? c->leak_w * c->leak_per_k : 0.0;
    double tau = c->j_per_k / (1.0 / c->k_per_w - slope);
    double gain = 1.0 - c->k_per_w * c->leak_w * c->leak_per_k;
    double end = leaking ? c->ambient_c + c->k_per_w * (watts + c->leak_w) / gain
                         : c->ambient_c + c->k_per_w * watts;
    double decay = -expm1(-seconds / tau);
    double joules = (watts + (leaking ? leakage_w(c, end) : 0.0)) * seconds
                    + slope * (g->celsius - end) * tau * decay;
    g->celsius += (end - g->celsius) * decay;
    return joules;
}
static void keep_latencies(struct gpu *g, double served, double batch_ms, double seconds) {
    double kept = fmin(served, ceil(KEPT_PER_S * seconds));
    for (int i = 0; i < (int)kept; i++)
        g->latency_ms[g->kept++ % RING] = (float)(batch_ms * request_noise(g));
}
/* Let a stretch pass in which clocks and noise do not change. */
static void stretch(int index, double from, double seconds) {
    const struct chip *c = chip_of(index);
    struct gpu *g = &S->gpu[index];
    double slower, hungrier, watts, step;
    epoch_noise(index, from, &slower, &hungrier);
    if (!g->busy) {
        g->ran_mhz = c->min_mhz;
        g->energy_j += warm(c, g, c->idle_w, seconds, 1) * hungrier;
        return;
    }
    double ran = capped(c, g, &watts, &step);
    int hot = is_hot(c, g), ruled = ran < goal_mhz(c, g);
    watts = c->idle_w + (watts - c->idle_w) * g->load;
    if (ruled && ran > c->min_mhz + 1e-6 && g->load >= 1.0) {
        watts = g->cap_w;
        g->energy_j += warm(c, g, watts, seconds, 0) * hungrier;
    } else {
        g->energy_j += warm(c, g, watts, seconds, 1) * hungrier;
    }
    if (ruled) g->cap_s += seconds;
    if (hot) g->sw_thermal_s += seconds;
    g->ran_mhz = ran;
    g->step_ms = step * slower;
    double before = floor(g->progress);
    g->progress += 1000.0 * seconds / g->step_ms * g->load;
    double served = (floor(g->progress) - before) * g->batch;
    g->items += served;
    keep_latencies(g, served, g->step_ms, seconds);
}
/* The limit in force: the one that is asked for, or a lower one that is set out of band (BMC, module). */
static double enforced(const struct gpu *g) {
    return g->enforced_w ? fmin(g->enforced_w, g->limit_w) : g->limit_w;
}
static void take_effect(int index) {
    const struct chip *c = chip_of(index);
    struct gpu *g = &S->gpu[index];
    double high = g->lock_max && !g->deaf ? g->lock_max : c->gpu.max_mhz;
    g->clock_mhz = fmin(c->gpu.max_mhz, fmax(c->min_mhz, high));
    g->mem_mhz = g->mem_lock ? g->mem_lock : c->mem.max_mhz;
    g->cap_w = enforced(g);
    g->due_s = 0.0;
}
static void tick(struct gpu *g) {
    double spent = g->energy_j - g->tick_from_j;
    g->tick_from_j = g->energy_j;
    g->tick_j[g->ticks++ % 10] = spent;
    g->power_w = spent / TICK_S;
    switch ((int)g->counter) {
    case FROZEN: break;
    case BACKWARDS: g->counter_j -= 1.0; break;
    case HALF: g->counter_j += spent / 2.0; break;
    /* zeus issue 181: an idle board's counter may show 0.57 of what its power adds up to. PR 172: that of
     * a GH200 counts the module, the CPU and its memory included. */
    default: g->counter_j += spent * (g->busy ? g->load_ratio : g->idle_ratio) + g->module_w * TICK_S;
    }
}
static double wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static double after(double now, double grid) { return (floor(now / grid + 1e-6) + 1.0) * grid; }
static void advance(void) {
    double end = S->manual_s ? S->manual_s : wall_s();
    if (end < S->now_s) return;
    if (!S->manual_s && end - S->now_s > LONGEST_GAP_S) {
        for (int i = 0; i < (int)S->gpus; i++) stretch(i, S->now_s, end - LONGEST_GAP_S - S->now_s);
        S->now_s = end - LONGEST_GAP_S;
    }
    while (S->now_s < end) {
        double stop = fmin(end, after(S->now_s, TICK_S));
        for (int i = 0; i < (int)S->gpus; i++)
            if (S->gpu[i].due_s > S->now_s) stop = fmin(stop, S->gpu[i].due_s);
        for (int i = 0; i < (int)S->gpus; i++) {
            stretch(i, S->now_s, stop - S->now_s);
            if (S->gpu[i].due_s && S->gpu[i].due_s <= stop) take_effect(i);
            if (floor(stop / TICK_S + 1e-6) > floor(S->now_s / TICK_S + 1e-6)) tick(&S->gpu[i]);
        }
        S->now_s = stop;
    }
}

/* ---- the shared file ---- */
struct key { const char *name; size_t at; int per_gpu; };
#define ALL(field) { #field, offsetof(struct state, field), 0 }
#define ONE(field) { #field, offsetof(struct gpu, field), 1 }
static const struct key KEYS[] = {
    ALL(seed), ALL(manual_s), ALL(delay_s), ALL(noise), ALL(root_only), ALL(no_permission), ALL(hang),
    ALL(generation), ALL(unloaded), ALL(now_s), ALL(gpus),
    ONE(lock_min), ONE(lock_max), ONE(mem_lock), ONE(limit_w), ONE(clock_mhz), ONE(mem_mhz), ONE(cap_w),
    ONE(ran_mhz), ONE(busy), ONE(batch), ONE(items), ONE(step_ms), ONE(celsius), ONE(energy_j),
    ONE(counter_j), ONE(power_w), ONE(cap_s), ONE(sw_thermal_s), ONE(hw_thermal_s), ONE(brake_s),
    ONE(lost), ONE(refuse_mem), ONE(refuse_limit), ONE(refuse_clock), ONE(deaf), ONE(counter), ONE(mig),
    ONE(vgpu), ONE(mps_clients), ONE(foreign_pid), ONE(own_pid), ONE(thermal_mhz), ONE(no_fields),
    ONE(reach_mhz), ONE(load), ONE(enforced_w), ONE(init_s), ONE(persistence), ONE(lose_locks),
    ONE(idle_ratio), ONE(load_ratio), ONE(module_w), ONE(no_gpu_scope), ONE(uma), ONE(no_processes),
    ONE(pid_offset), ONE(profiles), ONE(requested_profiles), ONE(profile_conflicts),
};
/* The row of a call's refusals, by its name without a version: `nvmlInit_v2` is `nvmlInit`. A new one is
 * made where `made` says so; NULL where there is none, or no room. */
static struct call *call_of(const char *name, int made) {
    const char *version = strstr(name, "_v");
    size_t length = version ? (size_t)(version - name) : strlen(name);
    if (length >= CALL_NAME) return NULL;
    for (int k = 0; k < CALLS; k++) {
        struct call *c = &S->call[k];
        if (!*c->name) {
            if (made) memcpy(c->name, name, length);
            return made ? c : NULL;
        }
        if (!strncmp(c->name, name, length) && !c->name[length]) return c;
    }
    return NULL;
}
static int refused(const char *name, unsigned index) {
    const struct call *c = call_of(name, 0);
    return c ? (int)c->code[index] : SUCCESS;
}
static double *place(const char *name, unsigned index) {
    if (index >= GPUS) return NULL;
    if (!strncmp(name, "nvml", 4)) {
        struct call *c = call_of(name, 1);
        return c ? &c->code[index] : NULL;
    }
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++)
        if (!strcmp(KEYS[k].name, name))
            return (double *)((char *)(KEYS[k].per_gpu ? (void *)&S->gpu[index] : (void *)S) + KEYS[k].at);
    return NULL;
}
static void forget_locks(int index) {
    S->gpu[index].lock_min = S->gpu[index].lock_max = S->gpu[index].mem_lock = 0.0;
    take_effect(index);
}
static void forget_settings(int index) {
    struct gpu *g = &S->gpu[index];
    g->lock_min = g->lock_max = g->mem_lock = g->requested_profiles = 0.0;
    g->limit_w = chip_of(index)->limit_max_w;
    g->energy_j = g->counter_j = g->tick_from_j = 0.0;
    g->cap_s = g->sw_thermal_s = g->hw_thermal_s = g->brake_s = 0.0;
    take_effect(index);
}
static void begin(void) {
    memset(S, 0, sizeof *S);
    S->delay_s = 0.4;
    S->noise = S->root_only = 1.0;
    S->gpus = 2.0;
    S->now_s = wall_s();
    for (int i = 0; i < GPUS; i++) {
        S->gpu[i].celsius = 60.0;
        S->gpu[i].batch = 16.0;
        S->gpu[i].busy = S->gpu[i].load = S->gpu[i].persistence = 1.0;
        S->gpu[i].idle_ratio = S->gpu[i].load_ratio = 1.0;
        S->gpu[i].random = i + 1;
        forget_settings(i);
    }
    const char *init = getenv("FAKENVML_INIT");
    char *text = strdup(init ? init : ""), *rest = text, *word;
    while ((word = strsep(&rest, " "))) {
        char *equals = strchr(word, '=');
        if (!equals) continue;
        *equals = 0;
        for (int i = 0; i < GPUS; i++) {
            double *found = place(word, i);
            if (found) *found = atof(equals + 1);
        }
    }
    free(text);
    if (S->manual_s) S->now_s = S->manual_s;
    S->magic = MAGIC;
}
static void named(const char *path) {
    const char *from = path ? path : getenv("FAKENVML_STATE");
    if (from) snprintf(state_path, sizeof state_path, "%s", from);
    else snprintf(state_path, sizeof state_path, "/tmp/fakenvml-%u.state", (unsigned)getuid());
}
/* Map the file and lock it; a process that dies lets go of the lock. */
static int enter(void) {
    pthread_mutex_lock(&mutex);
    if (!S) {
        if (!*state_path) named(NULL);
        state_fd = open(state_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (state_fd < 0) { pthread_mutex_unlock(&mutex); return 0; }
        fchmod(state_fd, 0666);
        flock(state_fd, LOCK_EX);
        /* On a full disk a mapped hole would end the whole process by SIGBUS. */
        if (posix_fallocate(state_fd, 0, sizeof *S)) {
            close(state_fd);
            pthread_mutex_unlock(&mutex);
            return 0;
        }
        void *map = mmap(NULL, sizeof *S, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
        if (map == MAP_FAILED) { close(state_fd); pthread_mutex_unlock(&mutex); return 0; }
        S = map;
        if (S->magic != MAGIC) begin();
    } else {
        flock(state_fd, LOCK_EX);
    }
    advance();
    return 1;
}
static int leave(int code) {
    flock(state_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    return code;
}

/* ---- the tests' side door ---- */
void fakenvml_use(const char *path) {
    pthread_mutex_lock(&mutex);
    if (S) { munmap(S, sizeof *S); close(state_fd); S = NULL; }
    named(path);
    clients = 0;
    memset(initialised, 0, sizeof initialised);
    pthread_mutex_unlock(&mutex);
}
int fakenvml_set(unsigned index, const char *name, double value) {
    if (!enter()) return UNKNOWN;
    double *found = place(name, index);
    if (!found) return leave(NOT_FOUND);
    *found = value;
    if (!strncmp(name, "lock_", 5) || !strcmp(name, "mem_lock") || strstr("limit_w enforced_w", name))
        take_effect((int)index);
    if (!strcmp(name, "lose_locks")) forget_locks((int)index);
    if (!strcmp(name, "generation"))
        for (int i = 0; i < GPUS; i++) forget_settings(i);
    if (!strcmp(name, "manual_s") && S->now_s > value) S->now_s = value;
    return leave(SUCCESS);
}
int fakenvml_get(unsigned index, const char *name, double *value) {
    if (!enter()) return UNKNOWN;
    double *found = place(name, index);
    if (found) *value = *found;
    return leave(found ? SUCCESS : NOT_FOUND);
}
/* Fill `into` with the latencies kept since `*since`, at most `room`, and move `*since` on. */
int fakenvml_latencies(unsigned index, uint64_t *since, double *into, unsigned room) {
    if (index >= GPUS || !enter()) return -1;
    struct gpu *g = &S->gpu[index];
    uint64_t from = g->kept - *since > RING ? g->kept - (g->kept < RING ? g->kept : RING) : *since;
    unsigned n = 0;
    for (; from < g->kept && n < room; from++) into[n++] = g->latency_ms[from % RING];
    *since = from;
    leave(0);
    return (int)n;
}

/* ---- NVML ---- */
static void maybe_hang(int setter) {
    while (S && (S->hang >= 2 || (setter && S->hang >= 1))) usleep(20000);
}
/* Begin a call on a device: locked and up to date, or with an error and not locked. */
static int start(void *device, int setter, const char *call) {
    if (!clients) return UNINITIALIZED;
    maybe_hang(setter);
    if (!enter()) return UNKNOWN;
    if (S->unloaded) return leave(DRIVER_NOT_LOADED);
    if (S->generation != joined) return leave(LIB_RM_VERSION_MISMATCH);
    uintptr_t index = (uintptr_t)device - 1;
    if (index >= (uintptr_t)S->gpus) return leave(INVALID_ARGUMENT);
    if (refused(call, (unsigned)index)) return leave(refused(call, (unsigned)index));
    if (S->gpu[index].lost) return leave(GPU_IS_LOST);
    if (setter && (S->no_permission || (S->root_only && geteuid() != 0))) return leave(NO_PERMISSION);
    if (setter && S->gpu[index].vgpu) return leave(NOT_SUPPORTED);
    return SUCCESS;
}
#define GPU(device) (&S->gpu[(uintptr_t)(device) - 1])
#define CHIP(device) chip_of((int)((uintptr_t)(device) - 1))
#define BEGIN(device, setter, call) do { int e = start(device, setter, call); if (e) return e; } while (0)
#define START(device, setter) BEGIN(device, setter, __func__)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!enter()) return DRIVER_NOT_LOADED;
    if (refused("nvmlInit", 0)) return leave(refused("nvmlInit", 0));
    if (S->unloaded) return leave(DRIVER_NOT_LOADED);
    if (!clients) joined = S->generation;
    clients++;
    return leave(SUCCESS);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!clients) return UNINITIALIZED;
    if (!--clients) memset(initialised, 0, sizeof initialised);
    return SUCCESS;
}
const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 8: return "Insufficient External Power";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 11: return "Interrupt Request Issue";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 14: return "Corrupted infoROM";
    case GPU_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 17: return "The operating system has blocked the request.";
    case LIB_RM_VERSION_MISMATCH: return "RM has detected an NVML/RM version mismatch.";
    case 19: return "In use by another client";
    case 20: return "Insufficient memory";
    case 21: return "No data";
    case 22: return "The requested vgpu operation is not available on target device, because ECC is enabled";
    case 23: return "Ran out of critical resources, other than memory";
    case 24: return "Freq not supported";
    case 25: return "Argument version mismatch";
    case 26: return "Deprecated";
    case 27: return "Not Ready";
    case 28: return "GPU not found";
    case 29: return "Invalid state";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    if (!clients) return UNINITIALIZED;
    if (!enter()) return UNKNOWN;
    if (refused(__func__, 0)) return leave(refused(__func__, 0));
    snprintf(text, length, "580.95.%02d", 5 + (int)S->generation);
    return leave(SUCCESS);
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!clients) return UNINITIALIZED;
    if (!enter()) return UNKNOWN;
    *count = (unsigned)S->gpus;
    return leave(refused(__func__, 0));
}
/* nvml.h: nvmlInit_v2 initialises no GPU; asking for the handle of one does, and asking by UUID also those
 * that are looked at on the way. With persistence mode off that takes seconds a GPU, in every process. */
static void initialise(unsigned index) {
    if (index >= GPUS || initialised[index] || !enter()) return;
    double seconds = index < (unsigned)S->gpus ? S->gpu[index].init_s : 0.0;
    leave(SUCCESS);
    for (double until = wall_s() + seconds; wall_s() < until;) usleep(5000);
    initialised[index] = 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    if (clients) initialise(index);
    START(*device, 0);
    return leave(SUCCESS);
}
static const char *uuid_of(unsigned index) {
    static char uuid[GPUS][48];
    const char *host = getenv("FAKENVML_HOST"); /* GPUs of several hosts on one machine */
    snprintf(uuid[index], sizeof *uuid, "GPU-fa4e%04x-%04x-4000-8000-%012x", index,
             host ? (unsigned)atoi(host) & 0xffff : 0, index);
    return uuid[index];
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (unsigned i = 0; i < GPUS; i++) {
        if (clients) initialise(i);
        if (strcmp(uuid, uuid_of(i))) continue;
        *device = (void *)(uintptr_t)(i + 1);
        START(*device, 0);
        return leave(SUCCESS);
    }
    return clients ? NOT_FOUND : UNINITIALIZED;
}
static int text_of(const char *call, void *device, char *into, unsigned length, const char *text) {
    BEGIN(device, 0, call);
    snprintf(into, length, "%s", text);
    return leave(SUCCESS);
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    return text_of(__func__, device, text, length, CHIP(device)->name);
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    return text_of(__func__, device, text, length, uuid_of((unsigned)((uintptr_t)device - 1)));
}
struct pci { /* nvml.h: nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, pci_device, subsystem;
    char id[32];
};
static int number(const char *call, void *device, unsigned *into, double value) {
    BEGIN(device, 0, call);
    *into = (unsigned)value;
    return leave(SUCCESS);
}
int nvmlDeviceGetIndex(void *device, unsigned *index) {
    return number(__func__, device, index, (double)((uintptr_t)device - 1));
}
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    BEGIN(device, 0, __func__);
    unsigned bus = 0x65 + (unsigned)((uintptr_t)device - 1);
    *pci = (struct pci){.bus = bus};
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", bus);
    return leave(SUCCESS);
}
int nvmlDeviceGetArchitecture(void *device, unsigned *arch) { return number(__func__, device, arch, 7); }
int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) {
    START(device, 0);
    *mode = (unsigned)GPU(device)->persistence;
    return leave(SUCCESS);
}
int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) {
    START(device, 0);
    *mode = GPU(device)->vgpu ? 2 : 0;
    return leave(SUCCESS);
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    START(device, 0);
    *current = *pending = GPU(device)->mig ? 1 : 0;
    return leave(SUCCESS);
}
int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *into) {
    START(device, 0);
    if (GPU(device)->uma) return leave(NOT_SUPPORTED);
    unsigned room = *count, there = CHIP(device)->mem_count;
    *count = there;
    if (!into || room < there) return leave(INSUFFICIENT_SIZE);
    memcpy(into, CHIP(device)->mem_mhz, there * sizeof *into);
    return leave(SUCCESS);
}
int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned mem, unsigned *count, unsigned *into) {
    START(device, 0);
    const struct chip *c = CHIP(device);
    unsigned room = *count, there = (unsigned)((c->gpu.max_mhz - c->min_mhz) / c->step_mhz) + 1, known = 0;
    for (unsigned i = 0; i < c->mem_count; i++) known |= c->mem_mhz[i] == mem;
    if (!known) return leave(NOT_FOUND);
    *count = there;
    if (!into || room < there) return leave(INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < there; i++) into[i] = (unsigned)(c->gpu.max_mhz - i * c->step_mhz);
    return leave(SUCCESS);
}
/* The clocks of a P-state; of P0 those that locks take. A board without a list has them all the same. */
int nvmlDeviceGetMinMaxClockOfPState(void *device, unsigned type, unsigned pstate, unsigned *least, unsigned *most) {
    START(device, 0);
    const struct chip *c = CHIP(device);
    if (type > 1 || pstate) return leave(NOT_SUPPORTED);
    *least = (unsigned)c->min_mhz;
    *most = (unsigned)c->gpu.max_mhz;
    return leave(SUCCESS);
}
static int clock_of(const char *call, void *device, unsigned type, unsigned *mhz, int most) {
    BEGIN(device, 0, call);
    const struct gpu *g = GPU(device);
    const struct chip *c = CHIP(device);
    if (type > 2) return leave(NOT_SUPPORTED);
    if (type == 2) *mhz = (unsigned)(most ? c->mem.max_mhz : g->mem_mhz);
    else *mhz = (unsigned)(most ? c->gpu.max_mhz : g->ran_mhz);
    return leave(SUCCESS);
}
int nvmlDeviceGetClock(void *device, unsigned type, unsigned id, unsigned *mhz) {
    return clock_of(__func__, device, type, mhz, id == 3);
}
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    return clock_of(__func__, device, type, mhz, 0);
}
int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz) {
    return clock_of(__func__, device, type, mhz, 1);
}
/* A change shows after a random while, however often it is made anew. */
static int later(struct gpu *g) {
    if (!g->due_s) g->due_s = S->now_s + fmax(1e-6, S->delay_s * uniform(&g->random));
    return SUCCESS;
}
int nvmlDeviceSetGpuLockedClocks(void *device, unsigned low, unsigned high) {
    START(device, 1);
    struct gpu *g = GPU(device);
    const struct chip *c = CHIP(device);
    if (g->refuse_clock) return leave(NOT_SUPPORTED);
    if (low > high) return leave(INVALID_ARGUMENT);
    g->lock_min = fmin(c->gpu.max_mhz, fmax(c->min_mhz, low));
    g->lock_max = fmin(c->gpu.max_mhz, fmax(c->min_mhz, high));
    return leave(later(g));
}
int nvmlDeviceResetGpuLockedClocks(void *device) {
    START(device, 1);
    GPU(device)->lock_min = GPU(device)->lock_max = 0.0;
    return leave(later(GPU(device)));
}
int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned low, unsigned high) {
    START(device, 1);
    if (GPU(device)->refuse_mem) return leave(NOT_SUPPORTED);
    const struct chip *c = CHIP(device);
    (void)low;
    for (unsigned i = 0; i < c->mem_count; i++)
        if (c->mem_mhz[i] == high) GPU(device)->mem_lock = high;
    return leave(later(GPU(device)));      /* an unsupported value is silently ignored */
}
int nvmlDeviceResetMemoryLockedClocks(void *device) {
    START(device, 1);
    if (GPU(device)->refuse_mem) return leave(NOT_SUPPORTED);
    GPU(device)->mem_lock = 0.0;
    return leave(later(GPU(device)));
}
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *mw) {
    START(device, 0);
    *mw = (unsigned)(GPU(device)->limit_w * 1000.0);
    return leave(SUCCESS);
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw) {
    START(device, 0);
    *mw = (unsigned)(enforced(GPU(device)) * 1000.0);
    return leave(SUCCESS);
}
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *mw) {
    return number(__func__, device, mw, CHIP(device)->limit_max_w * 1000.0);
}
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most) {
    START(device, 0);
    if (GPU(device)->refuse_limit) return leave(NOT_SUPPORTED);
    *least = (unsigned)(CHIP(device)->limit_min_w * 1000.0);
    *most = (unsigned)(CHIP(device)->limit_max_w * 1000.0);
    return leave(SUCCESS);
}
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw) {
    START(device, 1);
    const struct chip *c = CHIP(device);
    if (GPU(device)->refuse_limit) return leave(NOT_SUPPORTED);
    if (mw < c->limit_min_w * 1000.0 || mw > c->limit_max_w * 1000.0) return leave(INVALID_ARGUMENT);
    GPU(device)->limit_w = mw / 1000.0;
    return leave(later(GPU(device)));
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    START(device, 0);
    if (GPU(device)->counter == ABSENT || GPU(device)->vgpu) return leave(NOT_SUPPORTED);
    *mj = (unsigned long long)fmax(0.0, GPU(device)->counter_j * 1000.0);
    return leave(SUCCESS);
}
static double shown_w(void *device) {
    const struct gpu *g = GPU(device);
    if (!CHIP(device)->averaged) return g->power_w;
    double sum = 0.0;
    for (int i = 0; i < 10; i++) sum += g->tick_j[i];
    return sum;                            /* ten ticks are one second */
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
    START(device, 0);
    if (GPU(device)->vgpu || GPU(device)->no_gpu_scope) return leave(NOT_SUPPORTED);
    *mw = (unsigned)(shown_w(device) * 1000.0);
    return leave(SUCCESS);
}
static unsigned long long reasons_of(void *device) {
    const struct gpu *g = GPU(device);
    const struct chip *c = CHIP(device);
    if (!g->busy) return IDLE;
    int ruled = g->ran_mhz < goal_mhz(c, g) - 0.5;
    return (ruled ? SW_POWER_CAP : 0) | (is_hot(c, g) ? SW_THERMAL : 0);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
    START(device, 0);
    *reasons = reasons_of(device);
    return leave(SUCCESS);
}
struct utilisation { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *into) {
    START(device, 0);
    if (GPU(device)->mig) return leave(NOT_SUPPORTED);
    into->gpu = GPU(device)->busy ? (unsigned)(97 * GPU(device)->load) : 0;
    into->memory = GPU(device)->busy ? (unsigned)(40 * GPU(device)->load) : 0;
    return leave(SUCCESS);
}
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *into) {
    START(device, 0);
    const struct gpu *g = GPU(device);
    double pids[2] = { g->own_pid, g->foreign_pid };
    unsigned room = *count, there = 0;
    for (int i = 0; i < 2; i++) {
        /* In a PID namespace: nobody, or the numbers of another one (nvidia-docker 1483, nvtop 149). */
        if (!pids[i] || g->no_processes) continue;
        pids[i] += g->pid_offset;
        if (into && there < room) into[there] = (struct process){ (unsigned)pids[i], 1u << 30, ~0u, ~0u };
        there++;
    }
    *count = there;
    return leave(there && (!into || room < there) ? INSUFFICIENT_SIZE : SUCCESS);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, struct process *into) {
    START(device, 0);
    unsigned room = *count, there = (unsigned)GPU(device)->mps_clients;
    for (unsigned i = 0; into && i < there && i < room; i++)
        into[i] = (struct process){ 5000000 + i, 1u << 30, ~0u, ~0u };
    *count = there;
    return leave(there && (!into || room < there) ? INSUFFICIENT_SIZE : SUCCESS);
}
/* nvml.h: NVML_POWER_SCOPE_GPU 0, _MODULE 1. A GH200 tells both (zeus PR 172), some only the module's; most
 * boards have no module. */
static double scoped_mw(const struct gpu *g, uint32_t scope, double watts, int *code) {
    if (scope > 1 || (scope == 0 && g->no_gpu_scope) || (scope == 1 && !g->module_w)) *code = NOT_SUPPORTED;
    return (watts + (scope ? g->module_w : 0.0)) * 1000.0;
}
/* Power profiles of Blackwell: 32 of the 255 bits are kept here. NVML's reference: a set adds the bits to
 * those requested, a clear removes them. Measured by others on an RTX 3060: an invalid pointer is looked for
 * first, then the version, then whether the board has any. Assumed: setters need root; other bits than the
 * valid ones are an invalid argument. */
struct profiles { unsigned version, valid[8], requested[8], enforced[8]; };
struct profile_request { unsigned version, mask[8]; };
struct profile { unsigned version, id, priority, conflicts[8]; };
struct profile_list { unsigned version, valid[8]; struct profile profile[255]; };
static int profiled(const struct gpu *g, const unsigned *into, size_t size) {
    if (!into) return INVALID_ARGUMENT;
    if (*into != (size | 1u << 24)) return 25;
    return g->profiles ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(void *device, struct profiles *into) {
    START(device, 0);
    const struct gpu *g = GPU(device);
    int code = profiled(g, into ? &into->version : NULL, sizeof *into);
    if (code) return leave(code);
    memset(into->valid, 0, sizeof *into - sizeof into->version);
    into->valid[0] = (unsigned)g->profiles;
    into->requested[0] = (unsigned)g->requested_profiles;
    into->enforced[0] = arbitrated(g);
    return leave(SUCCESS);
}
int nvmlDeviceWorkloadPowerProfileGetProfilesInfo(void *device, struct profile_list *into) {
    START(device, 0);
    const struct gpu *g = GPU(device);
    int code = profiled(g, into ? &into->version : NULL, sizeof *into);
    if (code) return leave(code);
    memset(into->valid, 0, sizeof *into - sizeof into->version);
    into->valid[0] = (unsigned)g->profiles;
    for (unsigned i = 0, rivals = (unsigned)g->profile_conflicts; i < 32; i++)
        if ((unsigned)g->profiles >> i & 1u)
            into->profile[i] = (struct profile){ sizeof(struct profile) | 1u << 24, i, i,
                                                 { rivals >> i & 1u ? rivals & ~(1u << i) : 0 } };
    return leave(SUCCESS);
}
static int request(const char *call, void *device, const struct profile_request *from, int set) {
    BEGIN(device, 1, call);
    struct gpu *g = GPU(device);
    int code = profiled(g, from ? &from->version : NULL, sizeof *from);
    if (code) return leave(code);
    unsigned before = (unsigned)g->requested_profiles, others = 0;
    for (int i = 1; i < 8; i++) others |= from->mask[i];
    if (others || from->mask[0] & ~(unsigned)g->profiles) return leave(INVALID_ARGUMENT);
    g->requested_profiles = set ? before | from->mask[0] : before & ~from->mask[0];
    return leave(SUCCESS);
}
int nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(void *device, struct profile_request *from) {
    return request(__func__, device, from, 1);
}
int nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(void *device, struct profile_request *from) {
    return request(__func__, device, from, 0);
}
struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    int type, code;
    union { double d; unsigned long long ull; unsigned ui; } value;
};
int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    START(device, 0);
    const struct gpu *g = GPU(device);
    for (int i = 0; i < count; i++) {
        struct field *f = &fields[i];
        f->timestamp = (int64_t)(S->now_s * 1e6);
        f->type = 3;
        f->code = g->no_fields ? NOT_SUPPORTED : SUCCESS;
        switch (f->id) {
        case 74: f->value.ull = (unsigned long long)(g->cap_s * 1e9); break;
        case 76: f->value.ull = 0; break;
        case 269: f->value.ull = (unsigned long long)(g->sw_thermal_s * 1e9); break;
        case 270: f->value.ull = (unsigned long long)(g->hw_thermal_s * 1e9); break;
        case 271: f->value.ull = (unsigned long long)(g->brake_s * 1e9); break;
        case 185: f->type = 1; f->value.ui = (unsigned)scoped_mw(g, f->scope, shown_w(device), &f->code);
                  if (!CHIP(device)->averaged) f->code = NOT_SUPPORTED;
                  break;
        case 186: f->type = 1; f->value.ui = (unsigned)scoped_mw(g, f->scope, g->power_w, &f->code); break;
        default: f->code = NOT_SUPPORTED;
        }
        if (g->vgpu) f->code = NOT_SUPPORTED;
    }
    return leave(SUCCESS);
}

#ifdef FAKENVML_TOOL
/* `fakenvml get GPU NAME`, `fakenvml set GPU NAME VALUE`: the state that FAKENVML_STATE names. */
int main(int count, char **word) {
    double value = 0.0;
    int set = count == 5 && !strcmp(word[1], "set"), get = count == 4 && !strcmp(word[1], "get");
    if (!set && !get) {
        fprintf(stderr, "usage: fakenvml get GPU NAME | fakenvml set GPU NAME VALUE\n");
        return 2;
    }
    unsigned gpu = (unsigned)atoi(word[2]);
    int code = set ? fakenvml_set(gpu, word[3], atof(word[4])) : fakenvml_get(gpu, word[3], &value);
    if (code) {
        fprintf(stderr, "GPU %u has no %s; see tests/nvml/README.md\n", gpu, word[3]);
        return 1;
    }
    if (get) printf("%.17g\n", value);
    return 0;
}
#endif
