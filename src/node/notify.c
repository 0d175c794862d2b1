/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * notify.c - datagrams to the service manager
 */
#include "node/notify.h"

#include "base/base.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* "/path", or "@name" of the abstract ones. */
static bool address_of(const char *text, struct sockaddr_un *out, socklen_t *bytes)
{
    size_t len = strlen(text);

    if ((*text != '/' && *text != '@') || len >= sizeof out->sun_path) {
        return false;
    }
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, text, len);
    if (*text == '@') {
        out->sun_path[0] = '\0';
    }
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

int vj_node_notify_open(void)
{
    const char *text = g_getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t bytes;
    VJ_AUTO_FD fd = -1;

    if (text == NULL || *text == '\0') {
        return -1;
    }
    if (!address_of(text, &address, &bytes)) {
        vj_log_warn("NOTIFY_SOCKET: %s is no address of a socket", text);
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, bytes) < 0) {
        vj_log_warn("NOTIFY_SOCKET: %s: %s", text, g_strerror(errno));
        return -1;
    }
    return vj_fd_steal(&fd);
}

void vj_node_notify(int fd, const char *state)
{
    if (fd >= 0 && send(fd, state, strlen(state), MSG_NOSIGNAL) < 0) {
        vj_log_warn("the service manager does not hear %s: %s", state, g_strerror(errno));
    }
}
