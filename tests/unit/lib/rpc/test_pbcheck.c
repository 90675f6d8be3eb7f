/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi.pb-c.h"
#include "lib/base/buf.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/arena.h"
#include "lib/rpc/pbcheck.h"
#include "lib/rpc/status.h"

#define CREATE (&csi__v1__create_volume_request__descriptor)

static void put_varint(struct uc_buf *b, uint64_t v)
{
	do {
		uint8_t byte = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);

		uc_buf_append(b, &byte, 1);
		v >>= 7;
	} while (v);
}

/* A field with a length. */
static void put_bytes(struct uc_buf *b, unsigned id, const void *p, size_t n)
{
	put_varint(b, (uint64_t)id << 3 | 2);
	put_varint(b, n);
	uc_buf_append(b, p, n);
}

static void put_str(struct uc_buf *b, unsigned id, const char *s)
{
	put_bytes(b, id, s, strlen(s));
}

static void put_message(struct uc_buf *b, unsigned id, struct uc_buf *m)
{
	put_bytes(b, id, m->data, m->len);
	uc_buf_done(m);
}

/* Checks bytes in memory of exactly their size, so that the sanitizer sees a byte read behind them.
 */
static int check(const ProtobufCMessageDescriptor *desc, const struct uc_buf *b, struct uc_err *err)
{
	char *exact = malloc(b->len ? b->len : 1);
	int r;

	memcpy(exact, b->data ? b->data : "", b->len);
	*err = (struct uc_err){ 0 };
	r = uc_pbcheck(desc, exact, b->len, UC_PBCHECK_ELEMENTS, err);
	free(exact);
	return r;
}

static void assert_refused(const struct uc_buf *b, int num, int status, const char *msg)
{
	struct uc_err err;

	assert_int_equal(check(CREATE, b, &err), -num);
	assert_int_equal(err.status, status);
	assert_string_equal(err.msg, msg);
}

static void a_proper_message_passes(void **state)
{
	Csi__V1__CreateVolumeRequest req = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry entry =
		CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry *entries[] = { &entry, &entry };
	Csi__V1__VolumeCapability cap = CSI__V1__VOLUME_CAPABILITY__INIT;
	Csi__V1__VolumeCapability *caps[] = { &cap, &cap };
	Csi__V1__VolumeCapability__MountVolume mnt = CSI__V1__VOLUME_CAPABILITY__MOUNT_VOLUME__INIT;
	Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char name[] = "v\xc3\xb6lume", key[] = "branches", value[] = "3", fs[] = "ext4";
	char flag[] = "noatime", *flags[] = { flag, flag };
	struct uc_err err;

	(void)state;
	req.name = name;
	entry.key = key;
	entry.value = value;
	req.parameters = entries;
	req.n_parameters = 2;
	mnt.fs_type = fs;
	mnt.mount_flags = flags;
	mnt.n_mount_flags = 2;
	cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	cap.mount = &mnt;
	req.volume_capabilities = caps;
	req.n_volume_capabilities = 2;
	range.required_bytes = INT64_MIN;
	range.limit_bytes = -1;
	req.capacity_range = &range;
	uc_buf_reserve(&b, csi__v1__create_volume_request__get_packed_size(&req));
	b.len = csi__v1__create_volume_request__pack(&req, (uint8_t *)b.data);
	assert_int_equal(check(CREATE, &b, &err), 0);
	assert_int_equal(err.num, 0);
	b.len = 0;
	assert_int_equal(check(CREATE, &b, &err), 0);
}

static void bad_string_is_named_by_its_path(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_buf m = UC_BUF_INIT, cap = UC_BUF_INIT;

	(void)state;
	put_str(&b, 1, "na\xff\xffme");
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT, "field `name` is not valid UTF-8");

	uc_buf_clear(&b);
	put_bytes(&b, 1, "a\0b", 3);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT, "field `name` holds a NUL");

	/* Two good capabilities before the one whose fs_type is bad. */
	uc_buf_clear(&b);
	put_bytes(&b, 3, NULL, 0);
	put_str(&b, 1, "name");
	put_bytes(&b, 3, NULL, 0);
	put_str(&m, 2, "noatime");
	put_str(&m, 1, "ext\xc3");
	put_message(&cap, 2, &m);
	put_message(&b, 3, &cap);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT,
		       "field `volume_capabilities[2].mount.fs_type` is not valid UTF-8");

	/* The second of two flags. */
	uc_buf_clear(&b);
	put_str(&m, 2, "noatime");
	put_bytes(&m, 2, "\0", 1);
	put_message(&cap, 2, &m);
	put_message(&b, 3, &cap);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT,
		       "field `volume_capabilities[0].mount.mount_flags[1]` holds a NUL");
}

static void keys_and_values_of_maps_are_strings_too(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_buf entry = UC_BUF_INIT;

	(void)state;
	put_str(&entry, 1, "k\xfe");
	put_str(&entry, 2, "v");
	put_message(&b, 4, &entry);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT,
		       "field `parameters[0].key` is not valid UTF-8");

	uc_buf_clear(&b);
	put_str(&entry, 1, "k");
	put_message(&b, 5, &entry);
	put_str(&entry, 1, "k");
	put_bytes(&entry, 2, "v\0", 2);
	put_message(&b, 5, &entry);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT,
		       "field `secrets[1].value` holds a NUL");
}

static void every_occurrence_of_a_string_counts(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	put_str(&b, 1, "\xff");
	put_str(&b, 1, "the last one wins");
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT, "field `name` is not valid UTF-8");
}

/* protobuf-c does not merge such messages as others do, and pays for it with memory. */
static void message_given_twice_is_refused(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_buf m = UC_BUF_INIT, cap = UC_BUF_INIT;
	struct uc_err err;

	(void)state;
	put_bytes(&b, 2, "\x08\x05", 2);
	put_bytes(&b, 2, "\x10\x06", 2);
	assert_refused(&b, EINVAL, UC_GRPC_INVALID_ARGUMENT,
		       "field `capacity_range` is given twice");

	/* The two members of a oneof are not the same field: the last one wins. */
	uc_buf_clear(&b);
	put_bytes(&cap, 1, NULL, 0);
	put_str(&m, 1, "ext4");
	put_message(&cap, 2, &m);
	put_message(&b, 3, &cap);
	assert_int_equal(check(CREATE, &b, &err), 0);
}

static void bytes_that_are_no_message_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *msg;
	} cases[] = {
#define NOT_IT "the message is not a `csi.v1.CreateVolumeRequest`"
		{ "\x00", 1, NOT_IT },
		{ "\x07", 1, NOT_IT },
		{ "\x80", 1, NOT_IT },
		{ "\x80\x80\x80\x80\x80\x01", 6, NOT_IT },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, NOT_IT },
		{ "\x80\x00", 2, NOT_IT },
		{ "\x0a", 1, "field `name` is malformed" },
		{ "\x0a\x05"
		  "abcd",
		  6, "field `name` is malformed" },
		{ "\x0a\xff\xff\xff\xff\x0f", 6, "field `name` is malformed" },
		{ "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "field `name` is malformed" },
		{ "\x0b", 1, "field `name` is malformed" },
		{ "\x0c", 1, "field `name` is malformed" },
		{ "\x0e", 1, "field `name` is malformed" },
		{ "\x08\x01", 2, "field `name` is malformed" },
		{ "\x0d\1\2\3\4", 5, "field `name` is malformed" },
		{ "\x12\x02\x08\x80", 4, "field `capacity_range.required_bytes` is malformed" },
		{ "\x12\x01\x00", 3, "field `capacity_range` is malformed" },
		{ "\xfa\x7f\x05"
		  "ab",
		  5, NOT_IT },
		{ "\xf8\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13, NOT_IT },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_buf struct uc_buf b = UC_BUF_INIT;

		uc_buf_append(&b, cases[i].bytes, cases[i].n);
		assert_refused(&b, EBADMSG, UC_GRPC_INTERNAL, cases[i].msg);
	}
}

static void unknown_fields_pass(void **state)
{
	static const char bytes[] = "\xf8\x7f\x96\x01" /* varint */
				    "\xf9\x7f"
				    "12345678"             /* 64 bits */
				    "\xfa\x7f\x02\xff\x00" /* bytes */
				    "\xfd\x7f"
				    "1234"; /* 32 bits */
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_err err;

	(void)state;
	uc_buf_append(&b, bytes, sizeof(bytes) - 1);
	assert_int_equal(check(CREATE, &b, &err), 0);
}

static void elements_are_counted(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_err err;

	(void)state;
	for (size_t i = 0; i < UC_PBCHECK_ELEMENTS; i++)
		put_bytes(&b, 3, NULL, 0);
	assert_int_equal(check(CREATE, &b, &err), 0);
	put_bytes(&b, 2000, NULL, 0);
	assert_refused(&b, E2BIG, UC_GRPC_RESOURCE_EXHAUSTED,
		       "the message has more than 65536 elements");
	assert_int_equal(uc_pbcheck(CREATE, b.data, b.len, SIZE_MAX, &err), 0);
}

static void nesting_is_limited(void **state)
{
	/* A type that holds itself; CSI has none. */
	static ProtobufCFieldDescriptor field = {
		.name = "inner",
		.id = 1,
		.label = PROTOBUF_C_LABEL_NONE,
		.type = PROTOBUF_C_TYPE_MESSAGE,
	};
	static const ProtobufCMessageDescriptor desc = {
		.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
		.name = "Nested",
		.n_fields = 1,
		.fields = &field,
	};
	struct uc_buf b = UC_BUF_INIT;
	struct uc_err err;

	(void)state;
	field.descriptor = &desc;
	for (int depth = 0; depth < 70; depth++) {
		struct uc_buf outer = UC_BUF_INIT;
		int r = check(&desc, &b, &err);

		assert_int_equal(r, depth <= 64 ? 0 : -E2BIG);
		if (depth > 64)
			assert_non_null(strstr(err.msg, "inner.inner."));
		put_message(&outer, 1, &b);
		b = outer;
	}
	uc_buf_done(&b);
}

static void packed_values_are_checked_and_counted(void **state)
{
	static const ProtobufCFieldDescriptor fields[] = {
		{ .name = "v",
		  .id = 1,
		  .label = PROTOBUF_C_LABEL_REPEATED,
		  .type = PROTOBUF_C_TYPE_UINT64 },
		{ .name = "f",
		  .id = 2,
		  .label = PROTOBUF_C_LABEL_REPEATED,
		  .type = PROTOBUF_C_TYPE_FIXED32 },
		{ .name = "d",
		  .id = 3,
		  .label = PROTOBUF_C_LABEL_REPEATED,
		  .type = PROTOBUF_C_TYPE_DOUBLE },
	};
	static const ProtobufCMessageDescriptor desc = {
		.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
		.name = "Numbers",
		.n_fields = ARRAY_SIZE(fields),
		.fields = fields,
	};
	static const struct {
		const char *bytes;
		size_t n;
		int r;
	} cases[] = {
		{ "\x0a\x03\x01\x80\x01", 5, 0 },
		{ "\x08\x05", 2, 0 },
		{ "\x0a\x00", 2, 0 },
		{ "\x0a\x02\x01\x80", 4, -EBADMSG },
		{ "\x12\x08"
		  "12345678",
		  10, 0 },
		{ "\x12\x07"
		  "1234567",
		  9, -EBADMSG },
		{ "\x15"
		  "1234",
		  5, 0 },
		{ "\x1a\x08"
		  "12345678",
		  10, 0 },
		{ "\x1a\x04"
		  "1234",
		  6, -EBADMSG },
		{ "\x1d"
		  "1234",
		  5, -EBADMSG },
	};
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char *many = calloc(1, UC_PBCHECK_ELEMENTS);
	struct uc_err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uc_buf_clear(&b);
		uc_buf_append(&b, cases[i].bytes, cases[i].n);
		assert_int_equal(check(&desc, &b, &err), cases[i].r);
	}
	uc_buf_clear(&b);
	put_bytes(&b, 1, many, UC_PBCHECK_ELEMENTS - 1);
	assert_int_equal(check(&desc, &b, &err), 0);
	uc_buf_clear(&b);
	put_bytes(&b, 1, many, UC_PBCHECK_ELEMENTS);
	assert_int_equal(check(&desc, &b, &err), -E2BIG);
	free(many);
}

/* Whether all strings of a message that protobuf-c has made are as promised; true as well for none.
 */
static bool strings_are_good(const ProtobufCMessage *m);

static bool value_is_good(const ProtobufCFieldDescriptor *f, const void *p)
{
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		const char *s = *(char *const *)p;

		return !s || uc_str_utf8_len(s, strlen(s)) == strlen(s);
	}
	if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage *const *)p)
		return strings_are_good(*(ProtobufCMessage *const *)p);
	return true;
}

static bool strings_are_good(const ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		const char *base = (const char *)m;
		size_t n;

		if (f->label != PROTOBUF_C_LABEL_REPEATED) {
			if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
			    *(const uint32_t *)(const void *)(base + f->quantifier_offset) != f->id)
				continue;
			if (!value_is_good(f, base + f->offset))
				return false;
			continue;
		}
		n = *(const size_t *)(const void *)(base + f->quantifier_offset);
		if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		for (size_t k = 0; k < n; k++)
			if (!value_is_good(f, *(char *const *)(const void *)(base + f->offset) +
						      k * sizeof(void *)))
				return false;
	}
	return true;
}

/* What passes is unpacked by protobuf-c, and then holds no bad string: no disagreement on one byte.
 */
static void what_passes_is_good_after_unpacking(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	struct uc_buf m = UC_BUF_INIT, cap = UC_BUF_INIT;
	unsigned passed = 0, refused = 0;

	(void)state;
	put_str(&b, 1, "name");
	put_bytes(&b, 2, "\x08\x80\x80\x04\x10\x05", 6);
	put_str(&m, 1, "ext4");
	put_str(&m, 2, "noatime");
	put_message(&cap, 2, &m);
	put_bytes(&cap, 3, "\x08\x01", 2);
	put_message(&b, 3, &cap);
	put_str(&m, 1, "key");
	put_str(&m, 2, "value");
	put_message(&b, 4, &m);
	put_bytes(&b, 7, "\x0a\x08\x0a\x06\x0a\x01k\x12\x01v", 10);
	for (unsigned seed = 0; seed < 30000; seed++) {
		cleanup_arena struct uc_arena arena = { .max = 1 << 20 };
		ProtobufCAllocator allocator = UC_ARENA_ALLOCATOR(&arena);
		ProtobufCMessage *back;
		size_t n = b.len;
		uint8_t *bytes;
		struct uc_err err;

		srand(seed);
		if (seed % 4 == 0)
			n = (size_t)rand() % (n + 1);
		bytes = malloc(n ? n : 1);
		memcpy(bytes, b.data, n);
		for (int i = rand() % 4; n && i >= 0; i--)
			bytes[(size_t)rand() % n] =
				rand() % 2 ? (uint8_t)rand() : (uint8_t)(rand() % 32);
		if (uc_pbcheck(CREATE, bytes, n, UC_PBCHECK_ELEMENTS, &err) < 0) {
			refused++;
		} else {
			passed++;
			back = protobuf_c_message_unpack(CREATE, &allocator, n, bytes);
			assert_non_null(back);
			assert_true(strings_are_good(back));
		}
		free(bytes);
	}
	assert_true(passed > 1000 && refused > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_proper_message_passes),
		cmocka_unit_test(bad_string_is_named_by_its_path),
		cmocka_unit_test(keys_and_values_of_maps_are_strings_too),
		cmocka_unit_test(every_occurrence_of_a_string_counts),
		cmocka_unit_test(message_given_twice_is_refused),
		cmocka_unit_test(bytes_that_are_no_message_are_refused),
		cmocka_unit_test(unknown_fields_pass),
		cmocka_unit_test(elements_are_counted),
		cmocka_unit_test(nesting_is_limited),
		cmocka_unit_test(packed_values_are_checked_and_counted),
		cmocka_unit_test(what_passes_is_good_after_unpacking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
