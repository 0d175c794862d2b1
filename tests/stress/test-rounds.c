/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* test-rounds.c - what the checker of rounds accepts and what it finds, by rounds made by
 * hand */
#include "../lib/test.h"

#include "rounds.h"

static Round round_;
static Content seen;
static Nearest nearest;

/* Before: @size letters from 'a' on, again and again. */
static void begin(uint64_t size)
{
    memset(&round_, 0, sizeof round_);
    memset(&seen, 0, sizeof seen);
    round_.before.size = size;
    for (uint64_t i = 0; i < size; i++) {
        round_.before.bytes[i] = (uint8_t)('a' + i % 26);
    }
}

/* An operation from @called to @returned that did what was asked. */
static Op *add(OpKind kind, uint64_t offset, const char *bytes, uint64_t called,
               uint64_t returned)
{
    Op *op = &round_.ops[round_.op_count++];

    op->kind = kind;
    op->offset = offset;
    op->len = strlen(bytes);
    memcpy(op->bytes, bytes, op->len);
    op->result = kind == OP_DELETE ? 0 : (int64_t)op->len;
    op->position = -1;
    op->called_ns = called;
    op->returned_ns = returned;
    return op;
}

static Verdict judge(const char *text)
{
    memset(&seen, 0, sizeof seen);
    seen.size = strlen(text);
    memcpy(seen.bytes, text, seen.size);
    return round_judge(&round_, &seen, &nearest);
}

static void both_orders(void **state)
{
    (void)state;
    begin(4);
    add(OP_APPEND, 0, "XYZ", 10, 20);
    add(OP_INSERT, 4, "123", 15, 25);
    assert_int_equal(judge("abcdXYZ123"), VERDICT_WRONG);
    assert_int_equal(judge("abcd123XYZ"), VERDICT_RIGHT);
    assert_int_equal(judge("abcdXYZ"), VERDICT_WRONG);
    assert_int_equal(judge("abcd"), VERDICT_WRONG);
    assert_int_equal(judge("abcdXYZ123Z"), VERDICT_WRONG);
    /* The insert lies before what was appended, whichever was first. */
    begin(4);
    add(OP_APPEND, 0, "XYZ", 10, 20);
    add(OP_APPEND, 0, "123", 15, 25);
    assert_int_equal(judge("abcdXYZ123"), VERDICT_RIGHT);
    assert_int_equal(judge("abcd123XYZ"), VERDICT_RIGHT);
    assert_int_equal(judge("abcdXY123Z"), VERDICT_WRONG);
}

static void order_of_time(void **state)
{
    (void)state;
    begin(4);
    add(OP_WRITE, 1, "XX", 10, 20);
    add(OP_WRITE, 1, "Y", 21, 30);
    assert_int_equal(judge("aYXd"), VERDICT_RIGHT);
    assert_int_equal(judge("aXXd"), VERDICT_WRONG);
    round_.ops[1].called_ns = 20;
    assert_int_equal(judge("aXXd"), VERDICT_RIGHT);
}

static void four_at_once(void **state)
{
    (void)state;
    begin(6);
    add(OP_APPEND, 0, "1", 10, 50);
    add(OP_APPEND, 0, "2", 10, 50);
    add(OP_DELETE, 0, "", 10, 50)->old_len = 2;
    add(OP_TRUNCATE, 5, "", 10, 50);
    assert_int_equal(judge("cdef1"), VERDICT_RIGHT); /* appended, cut, or deleted first */
    assert_int_equal(judge("cde12"), VERDICT_RIGHT); /* cut before all */
    assert_int_equal(judge("cdef21"), VERDICT_RIGHT); /* cut when it was as short */
    assert_int_equal(judge("abcde12"), VERDICT_WRONG);
    assert_int_equal(judge("ef1"), VERDICT_WRONG);
}

static void edits_move(void **state)
{
    (void)state;
    begin(8);
    add(OP_REPLACE, 2, "XYZ", 10, 50)->old_len = 1;
    add(OP_PUNCH, 3, "..", 10, 50);
    seen.size = 10;
    assert_int_equal(judge("abXYZ"), VERDICT_WRONG);
    memcpy(seen.bytes, "abX\0\0defgh", 10);
    seen.size = 10;
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    memcpy(seen.bytes, "abXYZ\0\0fgh", 10);
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    memcpy(seen.bytes, "abXYZ\0efgh", 10);
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_WRONG);
}

static void holes(void **state)
{
    (void)state;
    begin(2);
    add(OP_INSERT, 4, "X", 10, 50);
    memcpy(seen.bytes, "ab\0\0X", 5);
    seen.size = 5;
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    begin(6);
    add(OP_TRUNCATE, 2, "", 10, 20);
    add(OP_TRUNCATE, 4, "", 30, 40);
    memcpy(seen.bytes, "ab\0\0", 4);
    seen.size = 4;
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    memcpy(seen.bytes, "abcd", 4);
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_WRONG);
    begin(4);
    add(OP_ALLOCATE, 4, "...", 10, 50);
    memcpy(seen.bytes, "abcd\0\0\0", 7);
    seen.size = 7;
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
}

static void stores(void **state)
{
    Op *op;

    (void)state;
    begin(4);
    add(OP_INSERT, 0, "XY", 10, 50);
    add(OP_STORE, 2, "S", 10, 50)->result = 0;
    assert_int_equal(judge("XYSbcd"), VERDICT_RIGHT); /* behind the edit */
    assert_int_equal(judge("XYabSd"), VERDICT_RIGHT); /* before it */
    assert_int_equal(judge("XYabcd"), VERDICT_WRONG); /* lost */
    begin(4);
    op = add(OP_STORE, 2, "S", 10, 50);
    op->result = 0;
    add(OP_TRUNCATE, 1, "", 10, 50);
    assert_int_equal(judge("a"), VERDICT_RIGHT);
    op->bus_error = true; /* the page is there all the time */
    assert_int_equal(judge("a"), VERDICT_RESULT);
    round_.ops[1].offset = 0;
    assert_int_equal(judge(""), VERDICT_RIGHT);
}

/* An edit cuts pages off while somebody stores into them. */
static void store_cut_off(void **state)
{
    (void)state;
    begin(ROUND_PAGE + 8);
    add(OP_DELETE, 0, "", 10, 50)->old_len = 8;
    add(OP_STORE, ROUND_PAGE + 4, "S", 20, 60)->result = 0;
    seen.size = ROUND_PAGE;
    memcpy(seen.bytes, round_.before.bytes + 8, ROUND_PAGE);
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    round_.ops[1].called_ns = 51; /* the page is no longer there */
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RESULT);
    round_.ops[1].called_ns = 20;
    round_.ops[1].offset = ROUND_PAGE - 4; /* this one is */
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_WRONG);
    begin(8);
    add(OP_TRUNCATE, 0, "", 10, 50);
    add(OP_STORE, 2, "S", 20, 21)->bus_error = true;
    add(OP_STORE, 4, "S", 30, 31)->result = 0;
    assert_int_equal(judge(""), VERDICT_RIGHT);
    round_.ops[0].returned_ns = 29;
    assert_int_equal(judge(""), VERDICT_RESULT);
}

/* Behind the end it may come to light when the file grows. */
static void store_behind_end(void **state)
{
    (void)state;
    begin(4);
    add(OP_TRUNCATE, 1, "", 10, 20);
    add(OP_STORE, 2, "S", 30, 40)->result = 0;
    add(OP_TRUNCATE, 4, "", 50, 60);
    memcpy(seen.bytes, "a\0\0\0", 4);
    seen.size = 4;
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    seen.bytes[2] = 'S';
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_RIGHT);
    seen.bytes[1] = 'b';
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_WRONG);
}

static void copies(void **state)
{
    Op *op;

    (void)state;
    begin(8);
    op = add(OP_COPY_SELF, 4, "....", 10, 50);
    op->source = 0;
    add(OP_WRITE, 0, "X", 10, 50);
    assert_int_equal(judge("XbcdXbcd"), VERDICT_RIGHT);
    assert_int_equal(judge("Xbcdabcd"), VERDICT_RIGHT);
    assert_int_equal(judge("Xbcdefgh"), VERDICT_WRONG);
    op->result = 2; /* shorter than asked is allowed */
    assert_int_equal(judge("Xbcdabgh"), VERDICT_RIGHT);
    op->result = -EINVAL;
    assert_int_equal(judge("Xbcdefgh"), VERDICT_RIGHT);
}

static void positions(void **state)
{
    (void)state;
    begin(4);
    add(OP_APPEND, 0, "X", 10, 50)->position = 5;
    add(OP_APPEND, 0, "Y", 10, 50)->position = 6;
    assert_int_equal(judge("abcdXY"), VERDICT_RIGHT);
    assert_int_equal(judge("abcdYX"), VERDICT_POSITION);
}

static ReadFault judge_read(OpKind kind, uint64_t offset, const char *bytes, size_t len,
                            uint64_t asked)
{
    unsigned index = round_.op_count;
    Op *op = add(kind, offset, "", 15, 45);
    ReadFault fault;

    memcpy(op->bytes, bytes, len);
    op->result = (int64_t)len;
    op->len = asked;
    fault = round_judge_look(&round_, index, NULL);
    round_.op_count--;
    return fault;
}

static void reads(void **state)
{
    (void)state;
    begin(4);
    add(OP_INSERT, 0, "XY", 10, 50);
    assert_int_equal(judge_read(OP_READ, 0, "abcd", 4, 10), READ_RIGHT);
    assert_int_equal(judge_read(OP_READ, 0, "XYabcd", 6, 10), READ_RIGHT);
    assert_int_equal(judge_read(OP_READ, 0, "XYabc", 5, 10), READ_SIZE);
    assert_int_equal(judge_read(OP_READ, 0, "XYabcQ", 6, 10), READ_BYTES);
    assert_int_equal(judge_read(OP_TAIL, 4, "\0\0", 2, 10), READ_ZEROES);
    assert_int_equal(judge_read(OP_TAIL, 4, "cd", 2, 10), READ_RIGHT);
    assert_int_equal(judge_read(OP_TAIL, 4, "", 0, 10), READ_RIGHT);
    /* It had returned: the old content is no longer there. */
    round_.ops[0].returned_ns = 12;
    assert_int_equal(judge_read(OP_READ, 0, "abcd", 4, 10), READ_BYTES);
    /* It was called later. */
    round_.ops[0].called_ns = 46;
    round_.ops[0].returned_ns = 50;
    assert_int_equal(judge_read(OP_READ, 0, "XYabcd", 6, 10), READ_BYTES);
}

static void reads_beside_truncation(void **state)
{
    (void)state;
    begin(4);
    add(OP_TRUNCATE, 2, "", 10, 50);
    assert_int_equal(judge_read(OP_READ, 0, "ab\0\0", 4, 10), READ_RIGHT);
    assert_int_equal(judge_read(OP_READ, 0, "a\0\0\0", 4, 10), READ_ZEROES);
    assert_int_equal(judge_read(OP_READ, 0, "ab", 2, 10), READ_RIGHT);
    assert_int_equal(judge_read(OP_READ, 0, "a", 1, 10), READ_SIZE);
}

/* As many bytes for as many are a write, which makes the file longer page by page. */
static void sizes(void **state)
{
    Op *op;

    (void)state;
    begin(100);
    op = add(OP_REPLACE, 100, "", 10, 50);
    op->len = op->old_len = 5000;
    memset(op->bytes, 'x', op->len);
    op->result = 5000;
    add(OP_STAT, 0, "", 15, 45)->result = 4096;
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_RIGHT);
    round_.ops[1].result = 4097;
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_SIZE);
    round_.ops[1].result =
        100 + (int64_t)(ROUND_PAGE - (uintptr_t)op->bytes % ROUND_PAGE);
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_RIGHT);
    op->old_len = 4999; /* an edit is one step */
    round_.ops[1].result = 4096;
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_SIZE);
    round_.ops[1].result = 5100;
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_RIGHT);
}

/* A direct read beside an edit is of one moment, and so it fixes an order. */
static void direct_reads(void **state)
{
    Op *op;

    (void)state;
    begin(4);
    round_.exact_reads = true;
    add(OP_APPEND_EDIT, 0, "X", 10, 50);
    add(OP_APPEND_EDIT, 0, "Y", 10, 50);
    op = add(OP_READ, 0, "abcdX", 10, 50);
    op->direct = op->variant = true;
    op->len = 10;
    assert_int_equal(judge("abcdXY"), VERDICT_RIGHT);
    memcpy(op->bytes, "abcdY", 5);
    assert_int_equal(judge("abcdXY"), VERDICT_RESULT);
    op->direct = false;
    assert_int_equal(judge("abcdXY"), VERDICT_RIGHT);
}

static void names_of_faults(void **state)
{
    (void)state;
    begin(4);
    add(OP_APPEND, 0, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 10, 50);
    add(OP_INSERT, 4, "xxxx", 10, 50);
    assert_int_equal(judge("abcd0123456789ABxxxxCDEFGHIJKLMNOPQRSTUVWXYZ"),
                     VERDICT_WRONG);
    assert_string_equal(round_name_fault(&round_, &seen, &nearest), "torn append");
    assert_int_equal(judge("abcdxxxx"), VERDICT_WRONG);
    assert_string_equal(round_name_fault(&round_, &seen, &nearest), "size");
    assert_int_equal(judge("abcdxxxx0123456789ABCDEFGHIJKLMNOPQRSTUV...."),
                     VERDICT_WRONG);
    assert_string_equal(round_name_fault(&round_, &seen, &nearest), "lost bytes");
    memcpy(seen.bytes + 40, "\0\0\0\0", 4);
    assert_int_equal(round_judge(&round_, &seen, &nearest), VERDICT_WRONG);
    assert_string_equal(round_name_fault(&round_, &seen, &nearest), "zeroes");
}

/* Bytes [@from, @to) of the content that was seen are zero. */
static void lose(uint64_t from, uint64_t to)
{
    memset(seen.bytes + from, 0, to - from);
}

/* A page that is dirty at 50, a file of 100 bytes, an append that is there, and
 * posix_fadvise. */
static void begin_append(void)
{
    begin(100);
    round_.is_dirty = true;
    round_.dirty_at = 50;
    add(OP_APPEND, 0, "0123456789ABCDEF", 10, 50)->position = 116;
    add(OP_DROP, 0, "", 20, 30);
    seen = round_.before;
    seen.size = 116;
    memcpy(seen.bytes + 100, "0123456789ABCDEF", 16);
}

/* Zeroes in place of what was appended to a page that was dirty; nothing else, and not
 * by an edit. */
static void kernel_append(void **state)
{
    (void)state;
    begin_append();
    lose(100, 116);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    seen.bytes[105] = 'x';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[105] = '5'; /* some of it may be there */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    seen.bytes[50] = 0;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[50] = round_.before.bytes[50];
    round_.is_dirty = false;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.is_dirty = true;
    round_.dirty_at = ROUND_PAGE; /* another page is */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.dirty_at = 50;
    round_.ops[1].kind = OP_STAT; /* which writes nothing back, nor does fsync(2) */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[1].kind = OP_SYNC;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[1].kind = OP_DROP;
    round_.ops[1].called_ns = 51; /* the append had returned */
    round_.ops[1].returned_ns = 60;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[1].called_ns = 20;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    seen.size = 115;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.size = 116;
    add(OP_DELETE, 200, "", 10, 50);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[2].kind = OP_REPLACE; /* of as many bytes: a write */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
}

/* The page of the old end alone is cleared. */
static void kernel_append_pages(void **state)
{
    Op *op;

    (void)state;
    begin(ROUND_PAGE - 4);
    round_.is_dirty = true;
    add(OP_DROP, 0, "", 10, 50);
    op = add(OP_WRITE, ROUND_PAGE - 8, "0123456789ABCDEF", 10, 50);
    seen = round_.before;
    seen.size = ROUND_PAGE + 8;
    memcpy(seen.bytes + op->offset, op->bytes, op->len);
    lose(ROUND_PAGE - 4, ROUND_PAGE);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    lose(ROUND_PAGE - 5, ROUND_PAGE);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    memcpy(seen.bytes + op->offset, op->bytes, op->len);
    lose(ROUND_PAGE - 4, ROUND_PAGE + 1);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

/* Which order is the nearest says nothing: here the one in which the append is cut off
 * or punched. */
static void kernel_append_orders(void **state)
{
    (void)state;
    begin_append();
    add(OP_PUNCH, 114, "....", 5, 60); /* behind the end, since it came first */
    lose(100, 114);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    begin_append();
    add(OP_ALLOCATE, 160, "....", 5, 60);
    seen.size = 164;
    lose(
        100,
        164); /* as if it had come behind the allocation, but it says that it is at 116 */
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_WRONG);
    add(OP_WRITE, 164, "0123456789ABCDEF", 5, 60);
    seen.size = 180;
    memcpy(seen.bytes + 164, "0123456789ABCDEF", 16);
    assert_int_equal(round_judge(&round_, &seen, NULL), VERDICT_POSITION);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_APPEND);
    round_.ops[1].kind = OP_STAT;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

/* copy_file_range into a page that is stored into: either is lost, in that page. */
static void kernel_copy(void **state)
{
    (void)state;
    begin(2 * ROUND_PAGE);
    add(OP_COPY, 10, "0123456789", 10, 50);
    add(OP_STORE, 100, "S", 10, 50)->result = 0;
    seen = round_.before;
    seen.bytes[100] = 'S'; /* the copy is undone */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_COPY);
    seen.bytes[100] = round_.before.bytes[100]; /* both are */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_COPY);
    memcpy(seen.bytes + 10, "0123456789", 10); /* the store is lost */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_COPY);
    seen.bytes[100] = 0;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[100] = round_.before.bytes[100];
    seen.bytes[ROUND_PAGE + 5] = 'x';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[ROUND_PAGE + 5] = round_.before.bytes[ROUND_PAGE + 5];
    round_.ops[1].called_ns = 51; /* the copy had returned */
    round_.ops[1].returned_ns = 60;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[1].called_ns = 10;
    round_.ops[1].offset = ROUND_PAGE; /* another page */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

/* A copy within the file takes what is wrong along, to a page that nobody stores into. */
static void kernel_copy_chain(void **state)
{
    (void)state;
    begin(2 * ROUND_PAGE);
    add(OP_COPY, 10, "0123456789", 10, 50);
    add(OP_STORE, 100, "S", 10, 50)->result = 0;
    add(OP_COPY_SELF, ROUND_PAGE, "..........", 51, 60)->source = 10;
    seen = round_.before;
    seen.bytes[100] = 'S';
    memcpy(seen.bytes + 10, "0123456789", 10);
    memcpy(seen.bytes + ROUND_PAGE, round_.before.bytes + 10, 10);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_COPY);
    seen.bytes[ROUND_PAGE + 10] = 'x'; /* which was not copied */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[ROUND_PAGE + 10] = round_.before.bytes[ROUND_PAGE + 10];
    /* Now nothing is wrong where it comes from. */
    round_.ops[1].offset = ROUND_PAGE + 100;
    seen.bytes[100] = round_.before.bytes[100];
    seen.bytes[ROUND_PAGE + 100] = 'S';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

static void kernel_punch(void **state)
{
    (void)state;
    begin(2 * ROUND_PAGE);
    add(OP_PUNCH, 10, "0123456789", 10, 50);
    add(OP_STORE, 100, "S", 10, 50)->result = 0;
    seen = round_.before;
    seen.bytes[100] = 'S';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    add(OP_REOPEN, 0, "", 10, 50);
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_PUNCH);
    seen.bytes[100] = round_.before.bytes[100]; /* no store beside the hole is lost */
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    seen.bytes[100] = 'S';
    /* A read through the cache, then one past it: of another page, and of this one. */
    round_.ops[2].kind = OP_READ;
    round_.ops[2].len = 5;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[2].direct = true;
    round_.ops[2].offset = ROUND_PAGE;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[2].offset = 0;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_PUNCH);
    /* What is stored where the hole is to be goes with the page. */
    round_.ops[0].len = 100;
    seen.bytes[100] = round_.before.bytes[100];
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_PUNCH);
    seen.bytes[100] = 'x';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

static void kernel_direct(void **state)
{
    (void)state;
    begin(2 * ROUND_PAGE);
    add(OP_WRITE, 10, "0123456789", 10, 50);
    add(OP_STORE, 100, "S", 10, 50)->result = 0;
    seen = round_.before;
    seen.bytes[100] = 'S';
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
    round_.ops[0].direct = true;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_DIRECT);
    seen.bytes[10] = 0;
    assert_int_equal(round_kernel_fault(&round_, &seen), KERNEL_NONE);
}

/* What a view shows and the file does not have. */
static void kernel_views(void **state)
{
    static Content view;

    (void)state;
    begin_append();
    view = seen;
    memset(view.bytes + 100, 0, 16);
    assert_int_equal(round_kernel_fault_of_view(&round_, &view, &seen), KERNEL_APPEND);
    view.bytes[5] = 0;
    assert_int_equal(round_kernel_fault_of_view(&round_, &view, &seen), KERNEL_NONE);
    view = seen;
    view.bytes[200] = 'x'; /* behind the end */
    assert_int_equal(round_kernel_fault_of_view(&round_, &view, &seen), KERNEL_NONE);
    view.size = 115;
    assert_int_equal(round_kernel_fault_of_view(&round_, &view, &seen), KERNEL_NONE);
}

static void kernel_looks(void **state)
{
    Op *op;

    (void)state;
    begin_append();
    op = add(OP_TAIL, 100, "................", 15, 45);
    lose(100, 116);
    memcpy(op->bytes, seen.bytes + 100, 16);
    assert_int_equal(round_judge_look(&round_, 2, NULL), READ_ZEROES);
    assert_int_equal(round_kernel_fault_of_look(&round_, 2), KERNEL_APPEND);
    op->bytes[3] = 'x';
    assert_int_equal(round_kernel_fault_of_look(&round_, 2), KERNEL_NONE);
    op->bytes[3] = 0;
    op->result = 15; /* it ends where the file never did */
    assert_int_equal(round_kernel_fault_of_look(&round_, 2), KERNEL_NONE);
    /* A read that sees a page without what was stored. */
    begin(ROUND_PAGE);
    add(OP_STORE, 100, "S", 10, 14)->result = 0;
    add(OP_COPY, 10, "0123456789", 10, 50);
    op = add(OP_READ, 100, ".", 15, 45);
    op->bytes[0] = round_.before.bytes[100];
    assert_int_equal(round_kernel_fault_of_look(&round_, 2), KERNEL_COPY);
    op->bytes[0] = 'x';
    assert_int_equal(round_kernel_fault_of_look(&round_, 2), KERNEL_NONE);
}

/* A tail behind "abcd" that takes zeroes for what the operation before it brings. */
static void expect_growth(void)
{
    add(OP_TAIL, 4, "", 15, 45)->result = 2;
    round_.ops[1].len = 10;
    assert_int_equal(round_judge_look(&round_, 1, NULL), READ_ZEROES);
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_GROWTH);
    round_.ops[1].bytes[0] = 'Y';
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_NONE);
    round_.ops[1].bytes[0] = 0;
}

static void kernel_growth(void **state)
{
    Op *op;

    (void)state;
    begin(4);
    op = add(OP_APPEND, 0, "XY", 10, 50);
    op->direct = true;
    op->position = 6;
    expect_growth();
    op->direct = false;
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_NONE);
    op->direct = round_.ops[1].direct = true;
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_NONE);
}

static void kernel_growth_by_an_edit(void **state)
{
    Op *op;

    (void)state;
    begin(4);
    op = add(OP_INSERT, 4, "XY", 10, 50);
    expect_growth();
    op->returned_ns = 14; /* it was over when the reader came */
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_NONE);
    op->returned_ns = 50;
    op->old_len = 2; /* no longer than before */
    assert_int_equal(round_kernel_fault_of_look(&round_, 1), KERNEL_NONE);
}

static void what_comes_too_often_is_ours(void **state)
{
    g_autoptr(GHashTable) counts =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    Report report = {.counts = counts};

    (void)state;
    begin(4);
    for (; report.round < 50000; report.round += 10000) {
        (void)report_violation(&report, &round_, "zeroes", KERNEL_GROWTH);
    }
    assert_int_equal(report.kernel_faults, 5);
    assert_int_equal(report.violations, 0);
    for (unsigned i = 0; i < 3; i++) {
        (void)report_violation(&report, &round_, "zeroes", KERNEL_GROWTH);
    }
    assert_int_equal(report.kernel_faults, 6);
    assert_int_equal(report.violations, 2);
}

/* Whatever is drawn stays below the size that the checker has room for. */
static void what_is_drawn(void **state)
{
    static uint8_t source[SOURCE_BYTES];
    Choice choice = {
        .direct = true, .direct_align = 1, .most = ROUND_OPS, .source = source};
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 1);
    for (unsigned i = 0; i < OP_KINDS; i++) {
        choice.weights[i] = 1;
    }
    for (unsigned n = 0; n < 20000; n++) {
        begin(vj_rng_below(&rng, 24577));
        round_make(&round_, &rng, &choice, n);
        for (unsigned i = 0; i < round_.op_count; i++) {
            Op *op = &round_.ops[i];
            uint64_t page = op->offset / ROUND_PAGE * ROUND_PAGE;

            op->bus_error = op->kind == OP_STORE && page >= round_.before.size;
            op->result = op_classes[op->kind].changes ? (int64_t)op->len : 0;
            op->called_ns = 2 * i;
            op->returned_ns = 2 * i + 1;
            assert_true(op->len <= OP_BYTES);
        }
        round_judge(&round_, &round_.before, &nearest);
    }
}

static bool is_drawn(bool (*is_one)(const Op *op))
{
    for (unsigned i = 0; i < round_.op_count; i++) {
        if (is_one(&round_.ops[i])) {
            return true;
        }
    }
    return false;
}

static bool edits(const Op *op)
{
    return op_classes[op->kind].edits && !op_is_write(op);
}

static bool writes_back(const Op *op)
{
    return op->kind == OP_DROP || op->kind == OP_REOPEN || op->kind == OP_READ;
}

static bool writes_cached(const Op *op)
{
    return op_is_write(op) && !op->direct;
}

static bool writes_direct(const Op *op)
{
    return op_is_write(op) && op->direct;
}

static bool copies_range(const Op *op)
{
    return op->kind == OP_COPY || op->kind == OP_COPY_SELF;
}

static bool punches(const Op *op)
{
    return op->kind == OP_PUNCH || op->kind == OP_ZERO || op->kind == OP_ZERO_KEEP;
}

/* Beside edits nothing is drawn that the kernel loses by itself; nor direct writes
 * beside stores. */
static void no_blame(void **state)
{
    static uint8_t source[SOURCE_BYTES];
    Choice choice = {
        .direct = true, .direct_align = 1, .most = ROUND_OPS, .source = source};
    unsigned with_edits = 0;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 2);
    for (unsigned i = 0; i < OP_KINDS; i++) {
        choice.weights[i] = op_classes[i].weight;
    }
    for (unsigned n = 0; n < 100000; n++) {
        bool stores;

        begin(vj_rng_below(&rng, 24577));
        round_.is_dirty = n % 4 == 0;
        round_make(&round_, &rng, &choice, n);
        stores = round_stores(&round_);
        assert_false(stores && is_drawn(writes_direct));
        if (is_drawn(edits)) {
            with_edits++;
            assert_false((stores || round_.is_dirty) && is_drawn(writes_cached) &&
                         is_drawn(writes_back));
            assert_false(stores && is_drawn(copies_range));
            assert_false(stores && is_drawn(punches) && is_drawn(writes_back));
        }
    }
    assert_true(with_edits > 10000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_orders),
    cmocka_unit_test(order_of_time),
    cmocka_unit_test(four_at_once),
    cmocka_unit_test(edits_move),
    cmocka_unit_test(holes),
    cmocka_unit_test(stores),
    cmocka_unit_test(store_cut_off),
    cmocka_unit_test(store_behind_end),
    cmocka_unit_test(copies),
    cmocka_unit_test(positions),
    cmocka_unit_test(reads),
    cmocka_unit_test(reads_beside_truncation),
    cmocka_unit_test(direct_reads),
    cmocka_unit_test(sizes),
    cmocka_unit_test(names_of_faults),
    cmocka_unit_test(kernel_append),
    cmocka_unit_test(kernel_append_pages),
    cmocka_unit_test(kernel_append_orders),
    cmocka_unit_test(kernel_copy),
    cmocka_unit_test(kernel_copy_chain),
    cmocka_unit_test(kernel_punch),
    cmocka_unit_test(kernel_direct),
    cmocka_unit_test(kernel_views),
    cmocka_unit_test(kernel_looks),
    cmocka_unit_test(kernel_growth),
    cmocka_unit_test(kernel_growth_by_an_edit),
    cmocka_unit_test(what_comes_too_often_is_ours),
    cmocka_unit_test(no_blame),
    cmocka_unit_test(what_is_drawn),
};

VJ_TEST_MAIN(tests)
