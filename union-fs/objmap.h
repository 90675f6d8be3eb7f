/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lower objects by identity.  Everything here is called under fs->lock. */

#include "union-fs/lower.h"
#include "union-fs/ufs.h"

/** ufs_objmap_init() - Make an empty map; 0 or -ENOMEM */
int ufs_objmap_init(struct ufs_objmap *m);

/** ufs_objmap_done() - Release the map and the objects that are in it */
void ufs_objmap_done(struct ufs_objmap *m);

/** ufs_objmap_find() - The object, or NULL */
struct ufs_lower *ufs_objmap_find(const struct ufs_objmap *m, const struct ufs_ident *id);

/** ufs_objmap_add() - Add an object that is in no map.  Cannot fail: without memory, chains grow
 * longer */
void ufs_objmap_add(struct ufs_objmap *m, struct ufs_lower *l);

/** ufs_objmap_remove() - Remove an object that is in the map */
void ufs_objmap_remove(struct ufs_objmap *m, struct ufs_lower *l);
