/* Connecting by number is not built. */
#include "endpoint/cm_number.h"

static snd_status not_built(const char *op) { return snd_fail(SND_NOT_SUPPORTED, "%s: connecting by number is not built", op); }

snd_status snd_number_claim(snd_adapter *adapter, uint32_t *number)
{
	(void)adapter;
	*number = 0;
	return not_built("claim number");
}

snd_status snd_number_free(snd_adapter *adapter, uint32_t number)
{
	(void)adapter;
	(void)number;
	return not_built("free number");
}

snd_status snd_endpoint_connect_number(snd_endpoint *endpoint, const snd_number_params *params)
{
	(void)endpoint;
	(void)params;
	return not_built("connect by number");
}

snd_status snd_number_update(snd_endpoint *endpoint, const snd_number_params *params)
{
	(void)endpoint;
	(void)params;
	return not_built("update connection");
}

snd_status snd_number_leave(snd_endpoint *endpoint)
{
	(void)endpoint;
	return not_built("leave number");
}
