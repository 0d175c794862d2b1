/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Frames as they are on the wire, for ever: rpc-*.hex has one of each operation, and the
 * examples of varjfs-protocol(7) are the same bytes.  A frame with a bit that is wrong
 * is refused; a body that is cut off or longer is, under right checksums too.
 */
#include "../lib/golden.h"
#include "../lib/rpc-frames.h"
#include "../lib/rpc-recode.h"

static VjSlice part(const GByteArray *frame, size_t from, size_t len)
{
    g_assert_true(from + len <= frame->len);
    return vj_slice(frame->data + from, len);
}

/* As a receiver does: head, checksum of the body, fields. */
static int receive(const GByteArray *bytes, GByteArray *again)
{
    VjFrame frame;
    size_t body, sum;

    if (bytes->len < VJ_FRAME_HEAD_BYTES || vj_frame_decode(bytes->data, &frame) < 0) {
        return -EPROTO;
    }
    body = (size_t)frame.message_bytes + frame.bulk_bytes;
    if (bytes->len - VJ_FRAME_HEAD_BYTES != body) {
        return -EPROTO;
    }
    sum = vj_frame_sum_bytes(&frame);
    if (sum > 0 &&
        vj_checksum64(bytes->data + VJ_FRAME_HEAD_BYTES, sum) != frame.body_checksum) {
        return -EPROTO;
    }
    return rpc_recode(
        &frame, part(bytes, VJ_FRAME_HEAD_BYTES, frame.message_bytes),
        part(bytes, VJ_FRAME_HEAD_BYTES + frame.message_bytes, frame.bulk_bytes), again);
}

static void frames_are_as_ever(void **state)
{
    (void)state;
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        g_autoptr(GByteArray) frame = rpc_example_frame(e);
        g_autofree char *file = g_strdup_printf("rpc-%s-v1.hex", e->name);

        golden_expect(file, vj_slice(frame->data, frame->len));
    }
}

static void frames_are_read_and_written_again(void **state)
{
    (void)state;
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        g_autofree char *file = g_strdup_printf("rpc-%s-v1.hex", e->name);
        g_autoptr(GByteArray) frame = golden_load(file);
        g_autoptr(GByteArray) again = g_byte_array_new();

        assert_int_equal(receive(frame, again), 0);
        assert_int_equal(again->len, frame->len - VJ_FRAME_HEAD_BYTES);
        assert_memory_equal(again->data, frame->data + VJ_FRAME_HEAD_BYTES, again->len);
    }
}

/* The empty one too: its checksum is 0 and nothing else.  But in a bulk without a
 * checksum nothing is found. */
static void a_wrong_bit_is_found(void **state)
{
    (void)state;
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        g_autoptr(GByteArray) frame = rpc_example_frame(e);
        VjFrame head;
        size_t checked;

        assert_int_equal(vj_frame_decode(frame->data, &head), 0);
        checked = VJ_FRAME_HEAD_BYTES + vj_frame_sum_bytes(&head);
        for (size_t bit = 0; bit < checked * 8; bit++) {
            g_autoptr(GByteArray) again = g_byte_array_new();

            frame->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(receive(frame, again), -EPROTO);
            frame->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* What a body of fields has is all of it: with any other length it is refused. */
static bool has_fields(const RpcExample *e, const VjFrame *frame)
{
    bool is_failure = e->is_reply && e->timeout_or_status != VJ_WIRE_OK;

    return frame->message_bytes > 0 && (!is_failure || rpc_has_items(frame));
}

static int with_message(const VjFrame *like, const GByteArray *frame, size_t bytes)
{
    g_autoptr(GByteArray) longer = g_byte_array_new(), again = g_byte_array_new();
    g_autoptr(GByteArray) forged = NULL;
    size_t kept = MIN(bytes, like->message_bytes);

    g_byte_array_append(longer, frame->data + VJ_FRAME_HEAD_BYTES, (guint)kept);
    while (longer->len < bytes) {
        g_byte_array_append(longer, (const guint8 *)"", 1);
    }
    forged = rpc_frame(
        *like, vj_slice(longer->data, longer->len),
        part(frame, VJ_FRAME_HEAD_BYTES + like->message_bytes, like->bulk_bytes));
    return receive(forged, again);
}

static void messages_have_one_length(void **state)
{
    (void)state;
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        g_autoptr(GByteArray) frame = rpc_example_frame(e);
        VjFrame like;

        assert_int_equal(vj_frame_decode(frame->data, &like), 0);
        if (!has_fields(e, &like)) {
            continue;
        }
        assert_int_equal(with_message(&like, frame, like.message_bytes), 0);
        for (size_t bytes = 0; bytes < like.message_bytes; bytes++) {
            int rc = with_message(&like, frame, bytes);

            /* The statuses and lengths of a reply are as many as were asked for, which
             * its decoder is told. */
            if (strcmp(e->name, "stats-text") == 0 && bytes == 0) {
                assert_int_equal(rc, 0); /* JSON */
            } else if (strcmp(e->name, "remove-reply") == 0 && bytes % 4 == 0) {
                assert_int_equal(rc, 0);
            } else if (strcmp(e->name, "have-reply") == 0 && bytes % 8 == 0) {
                assert_int_equal(rc, 0);
            } else {
                assert_int_equal(rc, -EPROTO);
            }
        }
        assert_int_equal(with_message(&like, frame, like.message_bytes + 1),
                         e->op == VJ_OP_HELLO ? 0 : -EPROTO);
    }
}

/* ---- what only wrong fields show --------------------------------------------------- */

static int hello_of(const VjHello *m)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VjHello out;

    vj_hello_encode(bytes, m);
    return vj_hello_decode(vj_slice(bytes->data, bytes->len), &out);
}

static VjHello sound_hello(void)
{
    return (VjHello){.version_min = 1, .version_max = 1, .volume = vj_slice("home", 4)};
}

static void hello_flags_do_not_deny_each_other(void **state)
{
    /* bit n: flags n are sound */
    uint16_t sound = 1 << 0 | 1 << VJ_HELLO_CREATE | 1 << VJ_HELLO_ADOPT |
                     1 << (VJ_HELLO_CREATE | VJ_HELLO_DESTROY) | 1 << VJ_HELLO_READ_ONLY;

    (void)state;
    for (unsigned flags = 0; flags < 256; flags++) {
        VjHello m = sound_hello();

        m.flags = (uint8_t)flags;
        assert_int_equal(hello_of(&m), flags < 16 && (sound >> flags & 1) ? 0 : -EPROTO);
    }
}

static void hello_names_are_names(void **state)
{
    static const struct {
        const char *volume, *name;
        int rc;
    } cases[] = {
        {"home", "", 0},        {"h", "Ein Rechner", 0},        {"0.a_b-C", "é", 0},
        {"", "", -EPROTO},      {".hidden", "", -EPROTO},       {"-rf", "", -EPROTO},
        {"a/b", "", -EPROTO},   {"a b", "", -EPROTO},           {"a\n", "", -EPROTO},
        {"é", "", -EPROTO},     {"a", "\033[2J", -EPROTO},      {"a", "b\nc", -EPROTO},
        {"a", "\xff", -EPROTO}, {"a", "\xe2\x80\xae", -EPROTO},
    };
    VjHello m = sound_hello();

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        m.volume = vj_slice(cases[i].volume, strlen(cases[i].volume));
        m.name = vj_slice(cases[i].name, strlen(cases[i].name));
        assert_int_equal(hello_of(&m), cases[i].rc);
    }
    m = sound_hello();
    m.volume = vj_slice("a\0b", 3);
    assert_int_equal(hello_of(&m), -EPROTO);
    m = sound_hello();
    m.version_min = 0;
    assert_int_equal(hello_of(&m), -EPROTO);
    m.version_min = 2;
    assert_int_equal(hello_of(&m), -EPROTO);
}

static void hello_gets_its_client(void **state)
{
    static const uint8_t client[VJ_WIRE_UUID_BYTES] = {1, 2, 3};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VjHello m = sound_hello(), out;

    (void)state;
    vj_hello_encode(bytes, &m);
    vj_hello_set_client(bytes, client, 7);
    assert_int_equal(vj_hello_decode(vj_slice(bytes->data, bytes->len), &out), 0);
    assert_memory_equal(out.client, client, sizeof client);
    assert_int_equal(out.connection, 7);
    assert_int_equal(out.volume.len, 4);
    assert_memory_equal(out.volume.data, "home", 4);
}

static int get_of(uint64_t offset, uint32_t len)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VjWireGet m = {.offset = offset, .len = len}, out;

    vj_wire_get_encode(bytes, &m);
    return vj_wire_get_decode(vj_slice(bytes->data, bytes->len), &out);
}

static void get_stays_within_objects(void **state)
{
    (void)state;
    assert_int_equal(get_of(0, 1), 0);
    assert_int_equal(get_of(0, VJ_WIRE_OBJECT_MAX), 0);
    assert_int_equal(get_of(VJ_WIRE_OBJECT_MAX - 1, 1), 0);
    assert_int_equal(get_of(0, 0), -EPROTO);
    assert_int_equal(get_of(0, VJ_WIRE_OBJECT_MAX + 1), -EPROTO);
    assert_int_equal(get_of(VJ_WIRE_OBJECT_MAX, 1), -EPROTO);
    assert_int_equal(get_of(UINT64_MAX, 1), -EPROTO);
    assert_int_equal(get_of(UINT64_MAX, UINT32_MAX), -EPROTO);
}

static void more_comes_with_some(void **state)
{
    g_autoptr(GByteArray) items = g_byte_array_new(), list = g_byte_array_new();
    VjWireItemsReply of_items = {.more = 1};
    VjWireListReply of_list = {.more = 1};

    (void)state;
    vj_wire_items_reply_encode(items, &of_items);
    assert_int_equal(
        vj_wire_items_reply_decode(vj_slice(items->data, items->len), &of_items),
        -EPROTO);
    vj_wire_list_reply_encode(list, &of_list);
    assert_int_equal(
        vj_wire_list_reply_decode(vj_slice(list->data, list->len), 0, &of_list), -EPROTO);
}

static void statuses_and_errors_agree(void **state)
{
    (void)state;
    for (uint32_t status = 0; status < VJ_WIRE_STATUS_COUNT; status++) {
        assert_int_equal(vj_wire_status(vj_wire_errno(status)), status);
    }
    assert_int_equal(vj_wire_status(-EINVAL), VJ_WIRE_DEVICE);
    assert_int_equal(vj_wire_errno(VJ_WIRE_STATUS_COUNT), -EIO);
    assert_int_equal(vj_wire_errno(UINT32_MAX), -EIO);
}

/* ---- the page ---------------------------------------------------------------------- */

/* The bytes that stand first in a verbatim line: pairs of digits, one space between, up
 * to two spaces or the end. */
static void take_line(const char *line, GByteArray *bytes)
{
    const char *at = line + 4;

    while (g_ascii_isxdigit(at[0]) && g_ascii_isxdigit(at[1]) &&
           (at[2] == ' ' || at[2] == '\0')) {
        uint8_t byte =
            (uint8_t)(g_ascii_xdigit_value(at[0]) << 4 | g_ascii_xdigit_value(at[1]));

        g_byte_array_append(bytes, &byte, 1);
        at += at[2] == ' ' ? 3 : 2;
    }
}

/* The bytes below "=head2 @heading". */
static GByteArray *shown(char **lines, const char *heading)
{
    g_autofree char *head = g_strdup_printf("=head2 %s", heading);
    GByteArray *bytes = g_byte_array_new();
    bool is_below = false;

    for (char **line = lines; *line != NULL; line++) {
        if (g_str_has_prefix(*line, "=head")) {
            is_below = strcmp(*line, head) == 0;
        } else if (is_below && g_str_has_prefix(*line, "    ")) {
            take_line(*line, bytes);
        }
    }
    return bytes;
}

static void the_page_shows_these_bytes(void **state)
{
    g_autofree char *path =
        g_build_filename(TOP_SRCDIR, "man/varjfs-protocol.7.pod", NULL);
    g_autofree char *page = NULL;
    g_auto(GStrv) lines = NULL;
    unsigned count = 0;

    (void)state;
    assert_true(g_file_get_contents(path, &page, NULL, NULL));
    lines = g_strsplit(page, "\n", -1);
    for (const RpcExample *e = rpc_examples; e->name != NULL; e++) {
        g_autoptr(GByteArray) frame = rpc_example_frame(e);
        g_autoptr(GByteArray) in_page = NULL;

        if (e->heading == NULL) {
            continue;
        }
        in_page = shown(lines, e->heading);
        assert_int_equal(in_page->len, frame->len);
        assert_memory_equal(in_page->data, frame->data, frame->len);
        count++;
    }
    assert_int_equal(count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_as_ever),
        cmocka_unit_test(frames_are_read_and_written_again),
        cmocka_unit_test(a_wrong_bit_is_found),
        cmocka_unit_test(messages_have_one_length),
        cmocka_unit_test(hello_flags_do_not_deny_each_other),
        cmocka_unit_test(hello_names_are_names),
        cmocka_unit_test(hello_gets_its_client),
        cmocka_unit_test(get_stays_within_objects),
        cmocka_unit_test(more_comes_with_some),
        cmocka_unit_test(statuses_and_errors_agree),
        cmocka_unit_test(the_page_shows_these_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
