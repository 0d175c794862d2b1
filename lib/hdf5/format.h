/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the HDF5 connector stores
 *
 * Keys and objects of a volume; integers in values are little-endian, in keys big-endian.
 *
 * Key space "hdf5": the name of a file -> file record.
 *
 *     u8 version, u8 reserved[7], u8 file id[16], u64 created (us), part fcpl
 *
 * Names do not begin with a slash.  What does, with an empty value, is
 *
 *     "/f" id        this file is there: who replaces or deletes it deletes this key in
 *                    the same batch, so that of two only one does
 *     "/d" id        its record has gone, its spaces are to go: whoever creates or
 *                    deletes a file next goes on with that
 *
 * Each file has a key space and an object space of its own, "hdf5-" and the 32
 * hexadecimal digits of its id.  Keys begin with the 8 bytes of an object id and a byte
 * that says the kind:
 *
 *     'h'            header: what was fixed when the object was created
 *     'e'            extent of a dataset, where it has been changed: extent.c
 *     'w' u64        a segment of a dataset's blobs whose write may not have ended yet:
 *                    blob.c
 *     'k' u64        a write that keeps members of this dataset's elements, and 't' u64,
 *                    one of all that removes what they refer to: under way, or was killed
 *     'l' NAME       link of a group
 *     'm' NAME       the end of its name, of one that is very long
 *     'r' id NAME    a link to this object: the group that has it, and its name there.
 *                    The link count is the number of these keys, so that processes that
 *                    add and remove links never overwrite one another's count.  Group 0
 *                    and 8 random bytes: a count that H5Oincr_refcount added
 *     'n'            a link has been made to this object when it was there already:
 *                    empty.  Who removes the object deletes this key before it counts
 *                    the links, and the header goes in a batch that fails where the key
 *                    is there again
 *     'u' id NAME    a user of this committed type: a dataset, whose NAME is empty, or an
 *                    attribute of the object.  The type goes with the last of these and
 *                    of its links
 *     'o'            links of this group have been given numbers of creation order: empty
 *     'o' u64        the next number: empty.  There is one such key; who takes the number
 *                    deletes it and puts that of the next number in the batch that makes
 *                    the link, so that of two only one gets it
 *     'a' NAME       attribute
 *     'p', 'p' u64   creation order of attributes, likewise
 *
 * A "part" is u32 length and that many bytes.  Values:
 *
 *     header     u8 version, u8 kind, u16 flags, u32 0, u64 created (us), u64 id of the
 *                committed type or 0, parts: creation property list, type, space,
 *                transformation
 *     link       u8 version, u8 type, u8 character set, u8 flags, u32 0, u64 creation
 *                order, u64 id, parts: rest of the name, target of a soft link
 *     attribute  u8 version, u8 character set, u16 flags, u32 0, u64 creation order (the
 *                time, where it is not tracked), u64 id of the committed type or 0, u64
 *                data id, parts: rest of the name, type, space, data.  Of data that stand
 *                in an object: u64 their length
 *
 * NAME is the name itself up to VJH_NAME_KEY_MAX bytes, and then the rest in the value is
 * empty; else its first VJH_NAME_HEAD bytes, a byte 0xff and 16 bytes of a hash, which is
 * longer than any name that stands for itself; the rest is what follows these first
 * bytes. Of a link's it has VJH_REST_MAX bytes at most, and the key 'm' NAME what follows
 * those.
 *
 * Objects, where ID is the object id as 16 hexadecimal digits:
 *
 *     ID             data of a contiguous or compact dataset
 *     ID.c.X.Y...    a chunk: its scaled coordinates, hexadecimal.  With filters: u32
 *                    mask of those that were left out, u32 0, u64 length, what they made
 *     ID.v.N         blobs of a dataset (variable-length data, references), segment N;
 *                    those of an attribute follow its elements
 *     ID.f.N         one of the first two that gets the fill value, until it has its name
 *     ID.a.D         data of an attribute that is too long for its key; D: its data id,
 *                    16 digits
 */
#ifndef VJH_FORMAT_H
#define VJH_FORMAT_H

#define VJH_FORMAT_VERSION 1

#define VJH_FILES_SPACE "hdf5"
#define VJH_SPACE_PREFIX "hdf5-"
#define VJH_FILE_ID_BYTES 16
#define VJH_FILE_THERE "/f"
#define VJH_FILE_DOOMED "/d"

#define VJH_ROOT_ID 1u

#define VJH_KEY_HEADER 'h'
#define VJH_KEY_EXTENT 'e'
#define VJH_KEY_SEGMENT 'w'
#define VJH_KEY_KEEPING 'k'
#define VJH_KEY_REMOVING 't'
#define VJH_KEY_LINK 'l'
#define VJH_KEY_LINK_MORE 'm'
#define VJH_KEY_REFERRER 'r'
#define VJH_KEY_LINKED 'n'
#define VJH_KEY_TYPE_USER 'u'
#define VJH_KEY_LINK_ORDER 'o'
#define VJH_KEY_ATTRIBUTE 'a'
#define VJH_KEY_ATTRIBUTE_ORDER 'p'

#define VJH_NAME_KEY_MAX 200
#define VJH_NAME_HEAD 184

#define VJH_REST_MAX 32768
/* Bytes of a link's name.  An attribute's has to go into its value with its type. */
#define VJH_LINK_NAME_MAX 98304
/* Bytes of an attribute's data that stand in its key. */
#define VJH_ATTRIBUTE_INLINE_MAX 32768

enum vjh_kind { VJH_GROUP = 1, VJH_DATASET = 2, VJH_TYPE = 3 };

/* Flags of a header. */
#define VJH_LINK_ORDER_TRACKED 1u
#define VJH_LINK_ORDER_INDEXED 2u
#define VJH_ATTRIBUTE_ORDER_TRACKED 4u
#define VJH_ATTRIBUTE_ORDER_INDEXED 8u
#define VJH_TIMES_TRACKED 16u

/* Flags of a link and of an attribute. */
#define VJH_HAS_ORDER 1u
/* The data of an attribute stand in an object. */
#define VJH_DATA_IN_OBJECT 2u
/* An attribute that has never been written: its data are zero. */
#define VJH_NOT_WRITTEN 4u
/* There is a key VJH_KEY_LINK_MORE. */
#define VJH_LONG_NAME 8u

enum vjh_link_type { VJH_LINK_HARD = 0, VJH_LINK_SOFT = 1 };

#endif
