/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device of a volume of layout linear or striped, over its branches' devices.
 *
 * Its UUID, made of that of the first branch, is how it is found; its name is for
 * people: `dmsetup ls` shows the volume's id.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "csi/local.h"
#include "csi/status.h"
#include "lib/os/blk.h"

enum {
	REMOVE_MS =
		30 * 1000, /* the kernel closes what a filesystem had open, and udev looks at it */
	UUID_SIZE = UC_UUID_TEXT_SIZE + 16,
	NAME_SIZE = UC_VOLUME_ID_SIZE + 32,
};

static const char *uuid_of(const struct uc_volume *v, char to[static UUID_SIZE])
{
	snprintf(to, UUID_SIZE, "union-csi-%s", v->branches[0].uuid);
	return to;
}

/* Another driver on this machine may have a volume of that id. */
static const char *name_of(const struct uc_volume *v, char to[static NAME_SIZE])
{
	snprintf(to, NAME_SIZE, "union-csi-%s-%.8s", v->id, v->branches[0].uuid);
	return to;
}

static int get_devs(const struct uc_volume *v, const struct uc_loopdev *loops, dev_t *ret_devs,
		    struct uc_err *err)
{
	for (size_t i = 0; i < v->n_branches; i++) {
		struct stat st;

		if (stat(UC_LOOPDEV_PATH(&loops[i]), &st) < 0)
			return uc_fail(err, errno, "stat `%s`", UC_LOOPDEV_PATH(&loops[i]));
		ret_devs[i] = st.st_rdev;
	}
	return 0;
}

/* Always from the segments that are recorded, never from what size the devices have. */
static void make_table(const struct uc_volume *v, const dev_t *devs, struct uc_dm_segment *segments,
		       struct uc_dm_piece *pieces)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_segments; i++) {
		const struct uc_segment *s = &v->segments[i];

		segments[i] = (struct uc_dm_segment){
			.start = s->start,
			.length = s->length,
			.pieces = &pieces[n],
			.n_pieces = s->n_branches,
			.chunk = s->stripe_size,
		};
		for (size_t k = 0; k < s->n_branches; k++)
			pieces[n++] = (struct uc_dm_piece){ .dev = devs[s->branch + k],
							    .offset = s->offset };
	}
}

static size_t count_pieces(const struct uc_volume *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_segments; i++)
		n += v->segments[i].n_branches;
	return n;
}

/* Nothing keeps somebody from mapping a branch once more: so it is looked for before every use. */
static int check_branches(const struct uc_volume *v, const dev_t *devs, dev_t allowed,
			  struct uc_err *err)
{
	for (size_t i = 0; i < v->n_branches; i++) {
		int r = uc_blk_check_holders(devs[i], allowed, err);

		if (r < 0)
			return uc_wrap(err, r, "branch %zu", i);
	}
	return 0;
}

static int create(const struct uc_volume *v, const dev_t *devs, dev_t *ret_dev, struct uc_err *err)
{
	cleanup_free struct uc_dm_segment *segments = calloc(v->n_segments, sizeof(*segments));
	cleanup_free struct uc_dm_piece *pieces = calloc(count_pieces(v), sizeof(*pieces));
	char uuid[UUID_SIZE], name[NAME_SIZE];
	dev_t dev = 0;
	int r;

	if (!segments || !pieces)
		return uc_fail(err, ENOMEM, "map the branches");
	r = uc_dm_find(uuid_of(v, uuid), &dev, err);
	if (r == 0 || r == -ENOENT)
		r = check_branches(v, devs, dev, err);
	if (r < 0)
		return r;
	make_table(v, devs, segments, pieces);
	r = uc_dm_create(name_of(v, name), uuid, segments, v->n_segments, &dev, err);
	if (r == 0)
		r = check_branches(v, devs, dev, err);
	if (r == 0)
		*ret_dev = dev;
	return r;
}

int csi_map_up(const struct uc_volume *v, const struct uc_loopdev *loops, dev_t *ret_dev,
	       struct uc_err *err)
{
	cleanup_free dev_t *devs = calloc(v->n_branches, sizeof(*devs));
	int r;

	if (!devs)
		return uc_fail(err, ENOMEM, "map the branches");
	r = get_devs(v, loops, devs, err);
	if (r == 0)
		r = create(v, devs, ret_dev, err);
	/* It is not there, or somebody else has what it needs: not a fault of ours. */
	if (r == -EOPNOTSUPP || r == -EEXIST || r == -EBUSY)
		return csi_as(err, r, UC_GRPC_FAILED_PRECONDITION);
	return r;
}

int csi_map_find(const struct uc_volume *v, dev_t *ret_dev, struct uc_err *err)
{
	char uuid[UUID_SIZE];
	int r = uc_dm_find(uuid_of(v, uuid), ret_dev, err);

	return r == -EOPNOTSUPP ? -ENOENT : r;
}

int csi_map_down(const struct uc_volume *v, struct uc_err *err)
{
	char uuid[UUID_SIZE];
	int r = uc_dm_remove(uuid_of(v, uuid), REMOVE_MS, err);

	if (r == -EBUSY)
		return csi_as(err, r, UC_GRPC_FAILED_PRECONDITION);
	return r == -EOPNOTSUPP ? 0 : r;
}
