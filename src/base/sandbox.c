/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sandbox.c - capabilities, Landlock, seccomp, by the kernel's own interface
 *
 * Each part is best effort: a kernel without it is served without it.  What is forbidden
 * fails with EPERM or EACCES and never kills, so that a library which tries something
 * harmless goes on.
 *
 * Builds with a sanitizer go without seccomp and stay dumpable: leak checking traces its
 * own process, and reports read the program's files.
 */
#include "base/base.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The directory that a sanitizer's log_path is in: it opens the file at its first
 * report. */
#define SANITIZER_REPORTS "VARJFS_SANITIZER_REPORTS"

/* ---- capabilities ------------------------------------------------------------------ */

static uint64_t kept_mask(VjSandboxKeep keep)
{
    const uint64_t one = 1;

    switch (keep) {
    case VJ_SANDBOX_FILES:
        return one << CAP_DAC_OVERRIDE | one << CAP_DAC_READ_SEARCH | one << CAP_FOWNER;
    case VJ_SANDBOX_MOUNTS:
        return one << CAP_SYS_ADMIN | one << CAP_DAC_READ_SEARCH;
    case VJ_SANDBOX_NONE:
        break;
    }
    return 0;
}

void vj_sandbox_drop_capabilities(VjSandboxKeep keep)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    uint64_t mask = kept_mask(keep);

    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* Takes CAP_SETPCAP, which an ordinary user has not; nor has he anything to lose. */
    for (unsigned i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if ((mask >> i & 1) == 0) {
            (void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
        }
    }
    if (syscall(SYS_capget, &head, sets) < 0) {
        vj_log_warn("sandbox: capabilities stay as they are: %s", g_strerror(errno));
        return;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(sets); i++) {
        sets[i].permitted &= (uint32_t)(mask >> (32 * i));
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, sets) < 0) {
        vj_log_warn("sandbox: capabilities stay as they are: %s", g_strerror(errno));
    }
}

/* ---- Landlock ---------------------------------------------------------------------- */

/*
 * Of the kernel's interface, which headers of older systems do not have in full.  A right
 * is handled where the version that brought it is there; the numbers never change.
 */
enum {
    RIGHT_EXECUTE = 1 << 0,
    RIGHT_WRITE_FILE = 1 << 1,
    RIGHT_READ_FILE = 1 << 2,
    RIGHT_READ_DIR = 1 << 3,
    RIGHT_REMOVE_DIR = 1 << 4,
    RIGHT_REMOVE_FILE = 1 << 5,
    RIGHT_MAKE_DIR = 1 << 7,
    RIGHT_MAKE_REG = 1 << 8,
    RIGHT_MAKE_SYM = 1 << 12,
    RIGHTS_OF_1 = (1 << 13) - 1,
    RIGHT_REFER = 1 << 13,
    RIGHT_TRUNCATE = 1 << 14,
    RIGHT_IOCTL_DEV = 1 << 15,
    RIGHTS_OF_FILES = RIGHT_EXECUTE | RIGHT_WRITE_FILE | RIGHT_READ_FILE |
                      RIGHT_TRUNCATE | RIGHT_IOCTL_DEV,
};
#define RIGHT_BIND_TCP ((uint64_t)1)
#define RIGHT_CONNECT_TCP ((uint64_t)2)
#define SCOPE_ABSTRACT_SOCKET ((uint64_t)1)
#define RULE_PATH_BENEATH 1
#define CREATE_RULESET_VERSION 1u

typedef struct Ruleset {
    uint64_t fs, net, scoped;
} Ruleset;

typedef struct PathRule {
    uint64_t rights;
    int32_t fd;
} __attribute__((packed)) PathRule;

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

static void allow_fd(int ruleset, int fd, uint64_t rights)
{
    struct stat st;
    bool is_dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    PathRule rule = {is_dir ? rights : rights & RIGHTS_OF_FILES, fd};

    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0) {
        vj_log_warn("sandbox: a directory cannot be allowed: %s", g_strerror(errno));
    }
}

/* What is not there need not be allowed. */
static void allow_path(int ruleset, const char *path, uint64_t rights)
{
    VJ_AUTO_FD fd = open(path, O_PATH | O_CLOEXEC);

    if (fd >= 0) {
        allow_fd(ruleset, fd, rights);
    }
}

static Ruleset ruleset_of(long version, uint32_t sockets)
{
    Ruleset r = {.fs = RIGHTS_OF_1 | RIGHT_REFER};
    uint64_t connect = (sockets & VJ_NEEDS_TCP) != 0 ? 0 : RIGHT_CONNECT_TCP;

    r.fs |= version >= 3 ? RIGHT_TRUNCATE : 0;
    r.fs |= version >= 5 ? RIGHT_IOCTL_DEV : 0;
    r.net = version >= 4 ? RIGHT_BIND_TCP | connect : 0;
    /* Signals are not confined: the kernel sends the guard one in our name when we
     * die. */
    r.scoped = version >= 6 ? SCOPE_ABSTRACT_SOCKET : 0;
    return r;
}

static size_t ruleset_bytes(long version)
{
    return version >= 6   ? sizeof(Ruleset)
           : version >= 4 ? offsetof(Ruleset, scoped)
                          : offsetof(Ruleset, net);
}

/*
 * Libraries read what they are made of late: character sets, certificates' configuration,
 * the time zone, the number of CPUs; and a request's caller is looked up in /proc.
 */
static void allow_system(int ruleset, const Ruleset *rules)
{
    static const char *const read_only[] = {
        "/usr",  "/lib",     "/lib64",      "/etc/ld.so.cache",    "/etc/localtime",
        "/proc", "/etc/ssl", "/etc/gcrypt", "/sys/devices/system", "/dev/urandom",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(read_only); i++) {
        allow_path(ruleset, read_only[i], RIGHT_READ_FILE | RIGHT_READ_DIR);
    }
    allow_path(ruleset, "/dev/null", RIGHT_READ_FILE | RIGHT_WRITE_FILE);
    if (VJ_IS_SANITIZED) {
        const char *reports = g_getenv(SANITIZER_REPORTS);

        allow_path(ruleset, "/", RIGHT_READ_FILE | RIGHT_READ_DIR);
        if (reports != NULL) {
            allow_path(
                ruleset, reports,
                (RIGHT_READ_FILE | RIGHT_WRITE_FILE | RIGHT_MAKE_REG | RIGHT_TRUNCATE) &
                    rules->fs);
        }
    }
}

/*
 * What getaddrinfo(3) reads, at once and at each later connection.  A file that is
 * replaced has another inode and cannot be read any more: so directories are allowed
 * where programs put them, and all of /etc to other users than root, whom the modes of
 * its files keep from what is secret.  Root's process, for which they do not, is left
 * with the addresses that it has where /etc/resolv.conf itself is replaced.
 */
static void allow_resolver(int ruleset)
{
    static const char *const paths[] = {
        "/etc/hosts",          "/etc/resolv.conf",    "/etc/nsswitch.conf",
        "/etc/host.conf",      "/etc/gai.conf",       "/etc/services",
        "/etc/protocols",      "/etc/networks",       "/run/systemd/resolve",
        "/run/NetworkManager", "/run/resolvconf",     "/run/connman",
        "/run/netconfig",      "/etc/resolvconf/run",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(paths); i++) {
        allow_path(ruleset, paths[i], RIGHT_READ_FILE | RIGHT_READ_DIR);
    }
    if (geteuid() != 0) {
        allow_path(ruleset, "/etc", RIGHT_READ_FILE | RIGHT_READ_DIR);
    }
}

static uint64_t rights_of(VjSandboxAccess access)
{
    uint64_t rights = RIGHT_READ_FILE | RIGHT_READ_DIR;

    if (access >= VJ_SANDBOX_NAMES) {
        rights |= RIGHT_MAKE_REG | RIGHT_REMOVE_FILE;
    }
    if (access >= VJ_SANDBOX_WRITE) {
        rights |= RIGHT_WRITE_FILE | RIGHT_REMOVE_DIR | RIGHT_MAKE_DIR | RIGHT_MAKE_SYM |
                  RIGHT_REFER | RIGHT_TRUNCATE;
    }
    return rights;
}

/* NULL: done; else why not. */
static const char *confine_files(const VjSandbox *plan)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    Ruleset rules;
    VJ_AUTO_FD ruleset = -1;

    if (version < 0) {
        return g_strerror(errno);
    }
    if (version < 2) {
        return "this kernel's is too old"; /* no rename into another directory */
    }
    rules = ruleset_of(version, plan->sockets);
    ruleset =
        (int)syscall(SYS_landlock_create_ruleset, &rules, ruleset_bytes(version), 0);
    if (ruleset < 0) {
        return g_strerror(errno);
    }
    for (unsigned i = 0; i < plan->dir_count; i++) {
        allow_fd(ruleset, plan->dirs[i].fd, rights_of(plan->dirs[i].access) & rules.fs);
    }
    allow_system(ruleset, &rules);
    if ((plan->sockets & VJ_NEEDS_TCP) != 0) {
        allow_resolver(ruleset);
    }
    return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? g_strerror(errno) : NULL;
}

/* ---- seccomp ----------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef OWN_ARCH

/*
 * Two kinds of filters: one that refuses what is listed, for a program that calls
 * libraries of all kinds, and one that lets pass what is listed, for a small one.
 */

/* Of no use to a file system.  io_uring is among them because its requests pass by
 * here. */
static const unsigned forbidden[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_open_by_handle_at,
    SYS_mknodat,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_personality,
    SYS_vhangup,
    SYS_syslog,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_capset,
    SYS_socketpair,
    SYS_bind,
    SYS_listen,
    /* Newer than some headers; the numbers are the same on every machine. */
    425 /* io_uring_setup */,
    428 /* open_tree */,
    429 /* move_mount */,
    430 /* fsopen */,
    431 /* fsconfig */,
    432 /* fsmount */,
    433 /* fspick */,
    438 /* pidfd_getfd */,
    440 /* process_madvise */,
    442 /* mount_setattr */,
    443 /* quotactl_fd */,
#ifdef SYS_mknod
    SYS_mknod,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
};

/* Of a process whose sockets do not listen. */
static const unsigned of_listeners[] = {
    SYS_accept,
    SYS_accept4,
};

#define SYSCALL_CLONE3 435
/* From here on calls have the same numbers on every machine, and C libraries fall back on
 * older ones. */
#define FIRST_NEW_CALL 424u
#define NEW_NAMESPACES 0x7e020080u /* CLONE_NEW* */
#define X32_BIT 0x40000000u
#define PROGRAM_MAX 512u

typedef struct Program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short len;
} Program;

static void emit(Program *p, struct sock_filter instruction)
{
    g_assert(p->len < PROGRAM_MAX);
    p->code[p->len++] = instruction;
}

static void emit_load(Program *p, size_t offset)
{
    emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void emit_return(Program *p, int error)
{
    emit(p, (struct sock_filter)BPF_STMT(
                BPF_RET | BPF_K,
                error == 0 ? SECCOMP_RET_ALLOW
                           : SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA)));
}

/* Steps over the next @count instructions unless the loaded word equals @value. */
static void emit_unless_equal(Program *p, unsigned value, uint8_t count)
{
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}

/* Calls of this machine alone; the number of the call is loaded then. */
static void emit_head(Program *p)
{
    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0));
    emit_return(p, EPERM);
    emit_load(p, offsetof(struct seccomp_data, nr));
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    emit_return(p, EPERM);
}

static void emit_calls(Program *p, const unsigned *calls, size_t count, int error)
{
    for (size_t i = 0; i < count; i++) {
        emit_unless_equal(p, calls[i], 1);
        emit_return(p, error);
    }
}

/* The lower half of an argument, on machines with the lower byte first. */
static void emit_load_argument(Program *p, unsigned number)
{
    emit_load(p, offsetof(struct seccomp_data, args) + number * sizeof(uint64_t));
}

/* Processes and threads, but no namespaces. */
static void emit_clone(Program *p)
{
    /* Its flags are in memory: the C library then takes clone, whose flags are not. */
    emit_unless_equal(p, SYSCALL_CLONE3, 1);
    emit_return(p, ENOSYS);
    emit_unless_equal(p, SYS_clone, 4);
    emit_load_argument(p, 0);
    emit(p,
         (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1));
    emit_return(p, EPERM);
    emit_return(p, 0);
}

/* @flags of seccomp(2).  0 or -errno. */
static int install(const Program *p, unsigned flags)
{
    struct sock_fprog whole = {p->len, (struct sock_filter *)(uintptr_t)p->code};

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole) < 0 ? -errno : 0;
}

#define SOCKET_TYPE_MASK 0xfu /* without SOCK_CLOEXEC and SOCK_NONBLOCK */

typedef struct SocketKind {
    unsigned family, type;
} SocketKind;

#define SOCKET_KINDS_MAX 6u

static unsigned socket_kinds(const VjSandbox *plan, SocketKind kinds[SOCKET_KINDS_MAX])
{
    unsigned count = 0;

    if (plan->has_syslog) {
        kinds[count++] = (SocketKind){AF_UNIX, SOCK_DGRAM};
    }
    if ((plan->sockets & VJ_NEEDS_UNIX) != 0) {
        kinds[count++] = (SocketKind){AF_UNIX, SOCK_STREAM};
    }
    if ((plan->sockets & VJ_NEEDS_TCP) != 0) {
        kinds[count++] = (SocketKind){AF_INET, SOCK_STREAM};
        kinds[count++] = (SocketKind){AF_INET6, SOCK_STREAM};
        kinds[count++] = (SocketKind){AF_INET, SOCK_DGRAM};
        kinds[count++] = (SocketKind){AF_INET6, SOCK_DGRAM};
    }
    return count;
}

/* The number of the call is loaded, and still is behind it. */
static void emit_sockets(Program *p, const VjSandbox *plan)
{
    enum { ONE_KIND = 6 };
    SocketKind kinds[SOCKET_KINDS_MAX];
    unsigned count = socket_kinds(plan, kinds);

    if (count == 0) {
        emit_unless_equal(p, SYS_connect, 1);
        emit_return(p, EACCES);
    }
    emit_unless_equal(p, SYS_socket, (uint8_t)(ONE_KIND * count + 1));
    for (unsigned i = 0; i < count; i++) {
        emit_load_argument(p, 0);
        emit_unless_equal(p, kinds[i].family, ONE_KIND - 2);
        emit_load_argument(p, 1);
        emit(p,
             (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_MASK));
        emit_unless_equal(p, kinds[i].type, 1);
        emit_return(p, 0);
    }
    emit_return(p, EACCES);
}

static int confine_calls(const VjSandbox *plan)
{
    Program p = {.len = 0};

    emit_head(&p);
    emit_calls(&p, forbidden, G_N_ELEMENTS(forbidden), EPERM);
    if (!plan->listens) {
        emit_calls(&p, of_listeners, G_N_ELEMENTS(of_listeners), EPERM);
    }
    emit_clone(&p);
    emit_sockets(&p, plan);
    emit_return(&p, 0);
    return install(&p, 0);
}

/* What a C library does by itself: memory, locks, the clock, signals, the end. */
static const unsigned of_libraries[] = {
    SYS_brk,
    SYS_mmap,
    SYS_mremap,
    SYS_munmap,
    SYS_mprotect,
    SYS_madvise,
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_set_robust_list,
    SYS_getpid,
    SYS_gettid,
    SYS_tgkill, /* abort(3) */
    SYS_exit,
    SYS_exit_group,
};

static int allow_calls(const unsigned *calls, size_t count)
{
    Program p = {.len = 0};

    emit_head(&p);
    emit_calls(&p, calls, count, 0);
    emit_calls(&p, of_libraries, G_N_ELEMENTS(of_libraries), 0);
    emit_clone(&p);
    emit(&p,
         (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_NEW_CALL, 0, 1));
    emit_return(&p, ENOSYS);
    emit_return(&p, EPERM);
    return install(&p, SECCOMP_FILTER_FLAG_LOG);
}

#else

static int confine_calls(const VjSandbox *plan)
{
    (void)plan;
    return -EOPNOTSUPP;
}

static int allow_calls(const unsigned *calls, size_t count)
{
    (void)calls, (void)count;
    return -EOPNOTSUPP;
}

#endif

int vj_sandbox_allow_calls(const unsigned *calls, size_t count)
{
    return VJ_IS_SANITIZED ? 0 : allow_calls(calls, count);
}

static const char *why_left_out(int r)
{
    return r == 0             ? NULL
           : r == -EOPNOTSUPP ? "not known for this kind of machine"
                              : g_strerror(-r);
}

/* ---- all of it --------------------------------------------------------------------- */

/* What libraries look up once, they look up now. */
static void warm_up(void)
{
    struct iovec one = {(void *)(uintptr_t) "", 1};
    VjDigest digest;

    tzset();
    (void)g_strerror(EPERM);
    (void)g_get_num_processors();
    for (uint8_t id = VJ_DIGEST_SHA1; id <= VJ_DIGEST_BLAKE3; id++) {
        bool is_known;
        const VjDigestOps *ops = vj_digest_by_id(id, &is_known);

        if (ops != NULL && vj_digest_hash(ops, &one, 1, &digest) < 0) {
            vj_log_warn("sandbox: the digest %s does not work", ops->name);
        }
    }
}

void vj_sandbox_refuse(const char *program)
{
    if (getauxval(AT_SECURE) != 0) {
        vj_complain(program,
                    "it has more privileges than its caller: it must not be installed "
                    "set-user-ID, set-group-ID or with file capabilities");
        exit(EXIT_FAILURE);
    }
}

void vj_sandbox_enter(const VjSandbox *plan)
{
    const char *why_files, *why_calls;

    g_assert(plan->dir_count <= VJ_SANDBOX_DIRS_MAX);
    warm_up();
    umask(077);
    vj_sandbox_drop_capabilities(plan->keep);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        vj_log_warn("sandbox: no_new_privs: %s", g_strerror(errno));
        return;
    }
    if (!VJ_IS_SANITIZED) {
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    why_files = confine_files(plan);
    why_calls = VJ_IS_SANITIZED ? NULL : why_left_out(confine_calls(plan));
    if (!plan->is_quiet && (why_files != NULL || why_calls != NULL)) {
        vj_log_info(
            "sandbox: left out:%s%s%s%s%s", why_files != NULL ? " Landlock: " : "",
            why_files != NULL ? why_files : "",
            why_files != NULL && why_calls != NULL ? ";" : "",
            why_calls != NULL ? " seccomp: " : "", why_calls != NULL ? why_calls : "");
    }
}
