/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * raw.h - connections to a node that send what a hostile peer likes to
 *
 * A wait that takes RAW_WAIT_MS ends the program: the node has stalled.
 */
#ifndef VJ_TESTS_NODE_RAW_H
#define VJ_TESTS_NODE_RAW_H

#include "rpc/messages.h"

#define RAW_WAIT_MS 120000

/* Of all connections: "unix:PATH" or "127.0.0.1:PORT". */
void raw_set_address(const char *address);
/* A socket that is connected.  A node that has no room may have closed it already. */
int raw_connect(void);

typedef enum RawSent { RAW_SENT, RAW_FULL, RAW_CLOSED } RawSent;
/* Without waiting: RAW_FULL where the node does not read; a part may be sent then. */
RawSent raw_offer(int fd, const void *bytes, size_t len);
/* Waits for the node to read. */
RawSent raw_send(int fd, const void *bytes, size_t len);
/* So many bytes; fewer: the node has closed. */
size_t raw_receive(int fd, void *dst, size_t len);
/* Reads until the node closes, and closes. */
void raw_wait_for_end(int fd);

/* A frame with right lengths and checksums; owned. */
GByteArray *raw_request(uint16_t op, uint64_t tag, VjSlice message, VjSlice bulk);
/* A right head that announces what does not follow. */
void raw_announce(uint16_t op, uint32_t message_bytes, uint32_t bulk_bytes,
                  uint8_t head[VJ_FRAME_HEAD_BYTES]);

/* The hello of a volume "home" with the examples' uuid; of no client.  The caller changes
 * what it likes. */
VjHello raw_hello(uint8_t role);
GByteArray *raw_hello_frame(const VjHello *m);

/* One reply, whole: its status; -1: the node has closed.  Its body is thrown away. */
int64_t raw_reply(int fd, VjFrame *frame);
/* Sends @m and waits: the status of the reply, or -1. */
int64_t raw_say_hello(int fd, const VjHello *m);
/* Connected and welcome. */
int raw_welcome(uint8_t role);

#endif
