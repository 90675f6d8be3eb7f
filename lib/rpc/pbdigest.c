/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/rpc/pbdigest.h"

/*
 * Theory of operation
 *
 * protobuf-c packs a message in one way only: fields by their numbers, defaults left
 * out.  What is left to the sender is the order of a map's entries, so these are sorted
 * and the message is packed again.
 *
 * For protobuf-c a map is a repeated message.  Its descriptor does not say that it was a
 * map, but protoc gives its type a name that ends in "Entry", and the fields `key` and
 * `value`.
 */

/* An entry, and where it was: of two with one key, the later one counts. */
struct slot {
	ProtobufCMessage *entry;
	size_t place;
};

static void *member(ProtobufCMessage *msg, unsigned offset)
{
	return (char *)msg + offset;
}

/* The key of a map's entries; NULL: it is no map. */
static const ProtobufCFieldDescriptor *key_of_map(const ProtobufCFieldDescriptor *field)
{
	const ProtobufCMessageDescriptor *entry = field->descriptor;
	bool is_entry = uc_str_has_suffix(entry->short_name, "Entry") && entry->n_fields == 2 &&
			uc_streq(entry->fields[0].name, "key") &&
			uc_streq(entry->fields[1].name, "value");

	return is_entry ? &entry->fields[0] : NULL;
}

static size_t size_of_key(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return sizeof(uint64_t);
	default:
		return sizeof(uint32_t);
	}
}

/* Any order will do, as long as it is always the same. */
static int compare(const void *left, const void *right, void *data)
{
	const ProtobufCFieldDescriptor *key = data;
	const struct slot *a = left, *b = right;
	const void *x = member(a->entry, key->offset), *y = member(b->entry, key->offset);
	int r;

	if (key->type == PROTOBUF_C_TYPE_STRING)
		r = strcmp(*(char *const *)x, *(char *const *)y);
	else
		r = memcmp(x, y, size_of_key(key->type));
	if (r == 0)
		r = a->place < b->place ? -1 : 1;
	return r;
}

static int sort_entries(ProtobufCMessage **entries, size_t n, const ProtobufCFieldDescriptor *key)
{
	cleanup_free struct slot *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		slots[i] = (struct slot){ .entry = entries[i], .place = i };
	qsort_r(slots, n, sizeof(*slots), compare, (void *)key);
	for (size_t i = 0; i < n; i++)
		entries[i] = slots[i].entry;
	return 0;
}

/* The messages in a field: *@ret_list; a field that is not repeated has one or none. */
static size_t messages_in(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field,
			  ProtobufCMessage ***ret_list)
{
	void *at = member(msg, field->offset), *quantifier = member(msg, field->quantifier_offset);

	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		*ret_list = *(ProtobufCMessage ***)at;
		return *(size_t *)quantifier;
	}
	*ret_list = at;
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && *(uint32_t *)quantifier != field->id)
		return 0;
	return **ret_list ? 1 : 0;
}

/* NOLINTNEXTLINE(misc-no-recursion): messages nest; the depth is limited */
static int sort_maps(ProtobufCMessage *msg)
{
	for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i], *key;
		ProtobufCMessage **list;
		size_t n;
		int r = 0;

		if (field->type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		n = messages_in(msg, field, &list);
		for (size_t j = 0; r == 0 && j < n; j++)
			r = sort_maps(list[j]);
		key = key_of_map(field);
		if (r == 0 && n > 1 && key)
			r = sort_entries(list, n, key);
		if (r < 0)
			return r;
	}
	return 0;
}

int uc_pbdigest(ProtobufCMessage *msg, uint8_t digest[static UC_SHA256_SIZE])
{
	cleanup_free uint8_t *packed = NULL;
	int r = sort_maps(msg);
	size_t n;

	if (r < 0)
		return r;
	n = protobuf_c_message_get_packed_size(msg);
	packed = malloc(n ? n : 1);
	if (!packed)
		return -ENOMEM;
	protobuf_c_message_pack(msg, packed);
	uc_sha256(packed, n, digest);
	return 0;
}
