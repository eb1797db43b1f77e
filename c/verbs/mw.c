/* Memory windows. */
#include <errno.h>
#include <stdlib.h>

#include "endpoint/qp_post.h"
#include "qp.h"
#include "window/table.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)

struct ibv_mw *alloc_mw(struct ibv_pd *public, enum ibv_mw_type type)
{
	struct pd *pd = (struct pd *)public;
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		(void)refuse(EINVAL, "allocate memory window: unknown type %d", (int)type);
		return NULL;
	}
	snd_adapter *adapter = adapter_of(pd);
	struct mw *mw = adapter == NULL ? NULL : calloc(1, sizeof *mw);
	if (mw == NULL)
		return NULL;
	const snd_status s = snd_window_create(adapter, &mw->core);
	if (s != SND_SUCCESS) {
		free(mw);
		(void)refuse_status(s);
		return NULL;
	}
	mw->core->i.any_endpoint = type == IBV_MW_TYPE_1;
	mw->public = (struct ibv_mw){.context = public->context, .pd = public, .type = type, .rkey = rkey_of(snd_unbound_token(mw->core->i.remote))};
	atomic_fetch_add(&pd->users, 1);
	return &mw->public;
}

int dealloc_mw(struct ibv_mw *public)
{
	const int error = refuse_end(snd_window_close(((struct mw *)public)->core, SND_FOREVER));
	if (error != 0)
		return error;
	atomic_fetch_sub(&((struct pd *)public->pd)->users, 1);
	free(public);
	return 0;
}

int set_bind(const struct qp *qp, struct ibv_mw *mw, const struct ibv_mw_bind_info *info, snd_request *r)
{
	const struct mr *mr = (const struct mr *)(const void *)info->mr;
	if (mw->pd != qp->public.base.pd || (info->mr != NULL && info->mr->pd != mw->pd))
		return refuse(EINVAL, "bind: the window or the region is of another protection domain than the queue pair");
	if ((info->mw_access_flags & ~(unsigned)ACCESS) != 0)
		return refuse(EINVAL, "bind: access %#x: windows know %#x", info->mw_access_flags, (unsigned)ACCESS);
	r->type = info->length == 0 ? SND_REQUEST_INVALIDATE : SND_REQUEST_BIND;
	r->window = ((struct mw *)mw)->core;
	r->mr = mr != NULL && (mr->access & IBV_ACCESS_MW_BIND) != 0 ? mr->core : NULL; /* without a region, the bind fails when it runs */
	r->address = info->addr;
	r->length = info->length;
	r->operand = (info->mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
	if (r->type == SND_REQUEST_BIND)
		r->flags |= (info->mw_access_flags & IBV_ACCESS_REMOTE_READ ? SND_ALLOW_READ : 0) | (info->mw_access_flags & IBV_ACCESS_REMOTE_WRITE ? SND_ALLOW_WRITE : 0) |
			(info->mw_access_flags & IBV_ACCESS_REMOTE_ATOMIC ? SND_ALLOW_ATOMIC : 0);
	return 0;
}

int set_keyed_bind(const struct qp *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info, snd_request *r)
{
	if (mw->type != IBV_MW_TYPE_2)
		return refuse(EINVAL, "bind: a request binds windows of type 2: use ibv_bind_mw");
	const int error = set_bind(qp, mw, info, r);
	if (r->type == SND_REQUEST_INVALIDATE) /* of no bytes: it only ends the bind before */
		return error;
	r->token = token_of(rkey);
	r->flags |= SND_THIS_ENDPOINT_ONLY;
	if ((rkey ^ mw->rkey) >> 8 != 0) /* the program may choose the low 8 bits */
		r->mr = NULL;
	return error;
}

int bind_mw(struct ibv_qp *public, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct qp *qp = (struct qp *)public;
	snd_request r = {.flags = request_flags(qp, IBV_WR_BIND_MW, (unsigned)bind->send_flags), .context = bind->wr_id};
	int error = check_sends(qp);
	if (error == 0)
		error = set_bind(qp, mw, &bind->bind_info, &r);
	if (error != 0)
		return error;
	const snd_status s = snd_endpoint_post_all(qp->core, &r, 1);
	if (s != SND_SUCCESS)
		return refuse_status(s);
	snd_window_descriptor latest;
	if (r.type == SND_REQUEST_BIND && snd_window_query(((struct mw *)mw)->core, &latest) == SND_SUCCESS && latest.token != 0)
		mw->rkey = rkey_of(latest.token);
	return 0;
}
