/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "lib/rpc/pbcheck.h"
#include "lib/rpc/status.h"

/*
 * Theory of operation
 *
 * One walk over the wire format, recursive as the message is.  Nothing is
 * allocated and nothing is remembered on the way down but one struct level for
 * each message, on the stack; the path of a field, with the indices of repeated
 * ones, is worked out from these only when there is an error to report.
 *
 * The walk accepts a subset of what protobuf-c accepts: where the two could
 * read the same bytes differently (field numbers above 2^29 - 1, a wire type
 * that does not fit the field's type), the walk refuses.  So a string that
 * protobuf-c will make is a string that was looked at here.
 */

enum {
	DEPTH_MAX = 64,
	FIELDS_MAX = 512, /* of one message type */
	VARINT_MAX = 10,
	WORD_BITS = 64,
};

struct cursor {
	const uint8_t *p, *end;
};

/* One message on the way down. */
struct level {
	const struct level *up;
	const ProtobufCMessageDescriptor *desc;
	const uint8_t *begin;                  /* of this message */
	const uint8_t *at;                     /* the field in hand: its tag */
	const ProtobufCFieldDescriptor *field; /* NULL: not known */
	uint64_t seen[FIELDS_MAX / WORD_BITS]; /* message fields that are not repeated */
};

struct walk {
	size_t elements_left, elements_max;
	struct uc_err *err;
};

struct tag {
	uint32_t id;
	unsigned wire;
};

static bool read_varint(struct cursor *c, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_MAX && c->p < c->end; i++) {
		uint8_t b = *c->p++;

		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (!(b & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static bool read_tag(struct cursor *c, struct tag *ret)
{
	const uint8_t *begin = c->p;
	uint64_t v;

	if (!read_varint(c, &v) || v > UINT32_MAX || v >> 3 == 0 || c->p - begin > 5)
		return false;
	ret->id = (uint32_t)(v >> 3);
	ret->wire = (unsigned)(v & 7);
	return true;
}

/* Steps over a value; for one with a length, *@ret_body is what it holds. */
static bool read_value(struct cursor *c, unsigned wire, struct cursor *ret_body)
{
	size_t left = (size_t)(c->end - c->p), fixed = wire == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4;
	uint64_t v;

	*ret_body = (struct cursor){ c->p, c->p };
	switch (wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		return read_varint(c, &v);
	case PROTOBUF_C_WIRE_TYPE_64BIT:
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		if (left < fixed)
			return false;
		c->p += fixed;
		return true;
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED: {
		const uint8_t *begin = c->p;

		if (!read_varint(c, &v) || c->p - begin > 5 || v > INT32_MAX ||
		    v > (uint64_t)(c->end - c->p))
			return false;
		*ret_body = (struct cursor){ c->p, c->p + v };
		c->p += v;
		return true;
	}
	default: /* groups, and what is not assigned */
		return false;
	}
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *desc,
						  uint32_t id)
{
	unsigned lo = 0, hi = desc->n_fields;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (desc->fields[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < desc->n_fields && desc->fields[lo].id == id ? &desc->fields[lo] : NULL;
}

/* How often the field in hand came before, in the same message. */
static size_t index_of(const struct level *l)
{
	struct cursor c = { l->begin, l->at }, body;
	size_t index = 0;
	struct tag tag;

	while (c.p < c.end && read_tag(&c, &tag) && read_value(&c, tag.wire, &body))
		if (tag.id == l->field->id)
			index++;
	return index;
}

static size_t put_path(char *to, size_t size, const struct level *l)
{
	size_t n = 0;

	if (l->up) {
		n = put_path(to, size, l->up);
		n += (size_t)snprintf(to + n, size - n, ".");
	}
	if (n < size && l->field->label == PROTOBUF_C_LABEL_REPEATED)
		n += (size_t)snprintf(to + n, size - n, "%s[%zu]", l->field->name, index_of(l));
	else if (n < size)
		n += (size_t)snprintf(to + n, size - n, "%s", l->field->name);
	return n < size ? n : size - 1;
}

/* Reports what is wrong with the field in hand. */
static int refuse(const struct walk *w, const struct level *l, int num, int status,
		  const char *what)
{
	char path[256];

	put_path(path, sizeof(path), l);
	return uc_fail_as(w->err, num, status, "field `%s` %s", path, what);
}

static int malformed(const struct walk *w, const struct level *l)
{
	if (l->field)
		return refuse(w, l, EBADMSG, UC_GRPC_INTERNAL, "is malformed");
	if (l->up)
		return malformed(w, l->up);
	return uc_fail_as(w->err, EBADMSG, UC_GRPC_INTERNAL, "the message is not a `%s`",
			  l->desc->name);
}

static int count(struct walk *w, size_t n)
{
	if (n > w->elements_left)
		return uc_fail_as(w->err, E2BIG, UC_GRPC_RESOURCE_EXHAUSTED,
				  "the message has more than %zu elements", w->elements_max);
	w->elements_left -= n;
	return 0;
}

static unsigned wire_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

static int check_string(const struct walk *w, const struct level *l, struct cursor body)
{
	size_t n = (size_t)(body.end - body.p), valid = uc_str_utf8_len(body.p, n);

	if (valid < n)
		return refuse(w, l, EINVAL, UC_GRPC_INVALID_ARGUMENT, "is not valid UTF-8");
	if (memchr(body.p, '\0', n))
		return refuse(w, l, EINVAL, UC_GRPC_INVALID_ARGUMENT, "holds a NUL");
	return 0;
}

static int check_packed(struct walk *w, const struct level *l, struct cursor body)
{
	unsigned wire = wire_of(l->field->type);
	size_t values = 0;
	uint64_t v;

	if (wire == PROTOBUF_C_WIRE_TYPE_VARINT) {
		for (; body.p < body.end; values++)
			if (!read_varint(&body, &v))
				return malformed(w, l);
	} else {
		size_t n = (size_t)(body.end - body.p),
		       size = wire == PROTOBUF_C_WIRE_TYPE_32BIT ? 4 : 8;

		if (n % size)
			return malformed(w, l);
		values = n / size;
	}
	return count(w, values);
}

/* True if the message field in hand, which is not repeated, was there before. */
static bool is_second(struct level *l)
{
	size_t i = (size_t)(l->field - l->desc->fields);
	uint64_t bit = UINT64_C(1) << (i % WORD_BITS), *word = &l->seen[i / WORD_BITS];

	if (l->field->label == PROTOBUF_C_LABEL_REPEATED)
		return false;
	if (*word & bit)
		return true;
	*word |= bit;
	return false;
}

static int check_message(struct walk *w, struct level *l, struct cursor c, unsigned depth);

/* NOLINTNEXTLINE(misc-no-recursion): messages nest; the depth is limited */
static int check_field(struct walk *w, struct level *l, unsigned wire, struct cursor body,
		       unsigned depth)
{
	const ProtobufCFieldDescriptor *f = l->field;
	struct level down = { .up = l, .desc = f->descriptor, .begin = body.p };

	if (wire != wire_of(f->type)) {
		if (f->label == PROTOBUF_C_LABEL_REPEATED &&
		    wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			return check_packed(w, l, body);
		return malformed(w, l);
	}
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return check_string(w, l, body);
	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return 0;
	if (is_second(l))
		return refuse(w, l, EINVAL, UC_GRPC_INVALID_ARGUMENT, "is given twice");
	if (depth == DEPTH_MAX)
		return refuse(w, l, E2BIG, UC_GRPC_RESOURCE_EXHAUSTED, "is nested too deeply");
	return check_message(w, &down, body, depth + 1);
}

/* NOLINTNEXTLINE(misc-no-recursion): messages nest; the depth is limited */
static int check_message(struct walk *w, struct level *l, struct cursor c, unsigned depth)
{
	int r;

	if (l->desc->n_fields > FIELDS_MAX)
		return uc_fail_as(w->err, E2BIG, UC_GRPC_INTERNAL, "type `%s` has too many fields",
				  l->desc->name);
	while (c.p < c.end) {
		struct cursor body;
		struct tag tag;

		l->at = c.p;
		l->field = NULL;
		if (!read_tag(&c, &tag))
			return malformed(w, l);
		l->field = find_field(l->desc, tag.id);
		if (!read_value(&c, tag.wire, &body))
			return malformed(w, l);
		r = count(w, 1);
		if (r == 0 && l->field)
			r = check_field(w, l, tag.wire, body, depth);
		if (r < 0)
			return r;
	}
	return 0;
}

int uc_pbcheck(const ProtobufCMessageDescriptor *desc, const void *p, size_t n, size_t elements,
	       struct uc_err *err)
{
	struct walk w = { .elements_left = elements, .elements_max = elements, .err = err };
	struct level top = { .desc = desc, .begin = p };
	struct cursor c = { p, p ? (const uint8_t *)p + n : p };

	return check_message(&w, &top, c, 0);
}
