/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Times CSI calls from C, where the client costs little beside the server:
 *
 *     client SOCKET probe N
 *     client SOCKET publish N ID STAGING TARGET    publishes and unpublishes N times
 *
 * Prints one line per call: microseconds, and what was called.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "csi.pb-c.h"
#include "lib/rpc/client.h"

static struct uc_client *client;

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void call(const ProtobufCServiceDescriptor *desc, const char *method,
		 const ProtobufCMessage *req)
{
	struct uc_err err = { .num = 0 };
	ProtobufCMessage *resp = NULL;
	double begin = now_us();

	if (uc_client_call(client, desc, method, req, 60000, &resp, &err) < 0) {
		fprintf(stderr, "%s: %s\n", method, err.msg);
		exit(EXIT_FAILURE);
	}
	printf("%.1f %s\n", now_us() - begin, method);
	protobuf_c_message_free_unpacked(resp, NULL);
}

static void probe(int n)
{
	Csi__V1__ProbeRequest q = CSI__V1__PROBE_REQUEST__INIT;

	while (n--)
		call(&csi__v1__identity__descriptor, "Probe", &q.base);
}

static void publish(int n, char *id, char *staging, char *target)
{
	Csi__V1__NodePublishVolumeRequest p = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__NodeUnpublishVolumeRequest u = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__VolumeCapability c = CSI__V1__VOLUME_CAPABILITY__INIT;
	Csi__V1__VolumeCapability__MountVolume m = CSI__V1__VOLUME_CAPABILITY__MOUNT_VOLUME__INIT;
	Csi__V1__VolumeCapability__AccessMode a = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__INIT;

	a.mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER;
	c.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	c.mount = &m;
	c.access_mode = &a;
	p.volume_id = u.volume_id = id;
	p.target_path = u.target_path = target;
	p.staging_target_path = staging;
	p.volume_capability = &c;
	while (n--) {
		call(&csi__v1__node__descriptor, "NodePublishVolume", &p.base);
		call(&csi__v1__node__descriptor, "NodeUnpublishVolume", &u.base);
	}
}

int main(int argc, char **argv)
{
	struct uc_err err = { .num = 0 };

	if (argc < 4 || uc_client_open(argv[1], &client, &err) < 0) {
		fprintf(stderr, "client: %s\n", argc < 4 ? "usage" : err.msg);
		return 2;
	}
	if (strcmp(argv[2], "probe") == 0)
		probe(atoi(argv[3]));
	else if (strcmp(argv[2], "publish") == 0 && argc == 7)
		publish(atoi(argv[3]), argv[4], argv[5], argv[6]);
	uc_client_close(client);
	return 0;
}
