/* Paths of queue pairs and address handles. A path to another fabric is accepted, as on a card, but no queue pair of this one is at its end. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"
#include "objects.h"

enum { TEXT = 64 + FABRIC_NAME };

/* describe names a fabric for people. */
static void describe(const char *fabric, char text[TEXT])
{
	unsigned long user;
	int n;
	if (sscanf(fabric, FABRIC_SOCKET "%lu-%n", &user, &n) == 1)
		(void)snprintf(text, TEXT, "fabric \"%s\" of user %lu", fabric + n, user);
	else
		(void)snprintf(text, TEXT, "the job %s of ndrun", fabric);
}

static bool leads_to(const struct ibv_ah_attr *path, const struct addresses *a)
{
	if (!path->is_global)
		return path->dlid == a->lid;
	for (int i = 0; i < PORT_GIDS; i++)
		if (has_gid(a, i) && memcmp(&path->grh.dgid, &a->gids[i], sizeof a->gids[i]) == 0)
			return true;
	return false;
}

/* find describes the fabric to which a path leads. The sockets of all fabrics that have members are listed by the kernel. */
static bool find(const struct ibv_ah_attr *path, char text[TEXT])
{
	const int fd = snd_above_standard(open("/proc/net/unix", O_RDONLY | O_CLOEXEC));
	FILE *sockets = fd < 0 ? NULL : fdopen(fd, "r");
	char line[512], name[FABRIC_NAME];
	bool found = false;
	while (sockets != NULL && !found && fgets(line, sizeof line, sockets) != NULL) {
		const char *at = strrchr(line, ' ');
		if (at == NULL || sscanf(at, " @%107s", name) != 1 || (strncmp(name, FABRIC_SOCKET, sizeof FABRIC_SOCKET - 1) != 0 && strncmp(name, JOB_SOCKET, sizeof JOB_SOCKET - 1) != 0))
			continue;
		const struct addresses a = addresses_of(name);
		found = leads_to(path, &a);
	}
	if (sockets != NULL)
		(void)fclose(sockets);
	else if (fd >= 0)
		(void)close(fd);
	if (found)
		describe(name, text);
	return found;
}

/* explain_path says under SOFTND_DEBUG which fabric a path leads to, instead of that of the process. */
static void explain_path(const char *op, const struct ibv_ah_attr *path)
{
	SND_UNCANCELED; /* the queue pair is locked */
	char own[FABRIC_NAME], here[TEXT], there[TEXT], address[INET6_ADDRSTRLEN];
	name_own_fabric(own);
	describe(own, here);
	if (path->is_global)
		(void)inet_ntop(AF_INET6, &path->grh.dgid, address, sizeof address);
	else
		(void)snprintf(address, sizeof address, "%#x", path->dlid);
	const char *kind = path->is_global ? "GID" : "LID";
	if (find(path, there))
		say("%s: %s %s is %s, this process is in %s: the queue pairs cannot reach each other", op, kind, address, there, here);
	else
		say("%s: %s %s is not that of %s, in which this process is, nor of a fabric in this network namespace that has members", op, kind, address, here);
}

int check_path(const char *op, const struct ibv_ah_attr *path)
{
	const struct addresses own = own_addresses();
	if (path->port_num != PORT)
		return refuse(EINVAL, "%s: port %u, the device has port %d", op, path->port_num, PORT);
	if (is_ethernet() && !path->is_global)
		return refuse(EINVAL, "%s: the path has no GID, which Ethernet (SOFTND_VERBS_LINK=roce) needs: set is_global and grh, in perftest -x, in the pingpongs -g", op);
	if (path->is_global && !has_gid(&own, path->grh.sgid_index))
		return refuse(EINVAL, "%s: entry %u of the GID table is empty", op, path->grh.sgid_index);
	if (is_asked() && !leads_to(path, &own))
		explain_path(op, path);
	return 0;
}
