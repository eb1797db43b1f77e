

#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

static const struct unit {
	const char *name;
	uint64_t nanoseconds;
} units[] = {
	{"ns", 1}, {"us", 1000}, {"\xc2\xb5s", 1000}, {"\xce\xbcs", 1000}, {"ms", 1000000}, {"s", UINT64_C(1000000000)},
	{"m", UINT64_C(60000000000)}, {"h", UINT64_C(3600000000000)}};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static const struct unit *unit_of(const char *text, size_t length)
{
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (strlen(units[i].name) == length && memcmp(units[i].name, text, length) == 0)
			return &units[i];
	return NULL;
}

bool snd_parse_duration(const char *text, int64_t *duration)
{
	const bool negative = *text == '-';
	const char *at = text + (negative || *text == '+');
	uint64_t total = 0;
	if (strcmp(at, "0") == 0) {
		*duration = 0;
		return true;
	}
	if (*at == 0)
		return false;
	while (*at != 0) {
		const uint64_t most = UINT64_C(1) << 63;
		uint64_t whole = 0;
		double fraction = 0, scale = 1;
		bool digits = false;
		for (; is_digit(*at); at++, digits = true) {
			const uint64_t digit = (uint64_t)(*at - '0');
			if (whole > (most - digit) / 10)
				return false;
			whole = whole * 10 + digit;
		}
		if (*at == '.')
			for (at++; is_digit(*at); at++, digits = true)
				fraction += (*at - '0') / (scale *= 10);
		const size_t length = strcspn(at, ".0123456789");
		const struct unit *unit = digits ? unit_of(at, length) : NULL;
		if (unit == NULL || whole > most / unit->nanoseconds)
			return false;
		const uint64_t part = whole * unit->nanoseconds + (uint64_t)(fraction * (double)unit->nanoseconds);
		if (part > most || total > most - part)
			return false;
		total += part;
		at += length;
	}
	if (negative ? total > (uint64_t)INT64_MAX + 1 : total > INT64_MAX)
		return false;
	*duration = negative ? (int64_t)(0 - total) : (int64_t)total;
	return true;
}

static snd_status read_executor(const char *text, snd_fabric_options *o, const char *op)
{
	if (strcmp(text, "target") == 0)
		o->executor = SND_EXECUTOR_TARGET; /* the default is the only other value */
	else if (strcmp(text, "auto") != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_EXEC: unknown executor \"%s\": want auto or target", op, text);
	return SND_SUCCESS;
}

static snd_status read_integrity(const char *text, snd_fabric_options *o, const char *op)
{
	if (strcmp(text, "1") == 0)
		o->check_payloads = 1;
	else if (strcmp(text, "0") != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_INTEGRITY: invalid value \"%s\": want 0 or 1", op, text);
	return SND_SUCCESS;
}

/* digit_of returns the value of a digit, or 16 if it is none. */
static uint64_t digit_of(char c)
{
	if (is_digit(c))
		return (uint64_t)(c - '0');
	c |= 'a' ^ 'A';
	return c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a' + 10) : 16;
}

/* parse_number reads a number as Go's strconv.ParseUint does with base 0: decimal, or with 0x, 0b, 0o or 0 in front, and with
 * underscores between digits. */
static bool parse_number(const char *text, uint64_t *number)
{
	uint64_t base = 10;
	*number = 0;
	if (text[0] == '0' && text[1] != 0) {
		const int kind = text[1] | ('a' ^ 'A'); /* in lower case */
		base = kind == 'x' ? 16 : kind == 'b' ? 2 : 8;
		text += kind == 'x' || kind == 'b' || kind == 'o' ? 2 : 1;
	}
	bool may_separate = base != 10; /* after a digit, or after the prefix */
	if (*text == 0)
		return false;
	for (; *text != 0; text++) {
		if (*text == '_' && may_separate && text[1] != '_' && text[1] != 0) {
			may_separate = false;
			continue;
		}
		const uint64_t digit = digit_of(*text);
		if (digit >= base || *number > (UINT64_MAX - digit) / base)
			return false;
		*number = *number * base + digit;
		may_separate = true;
	}
	return true;
}

static snd_status read_weak_order(const char *text, snd_fabric_options *o, const char *op)
{
	uint64_t seed;
	if (!parse_number(text, &seed))
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_WEAK_ORDER: seed \"%s\": want a number from 0 to 2^64-1", op, text);
	if (o->weak_order == 0) {
		o->weak_order = 1;
		o->weak_order_seed = seed;
	}
	return SND_SUCCESS;
}

static snd_status read_spin_budget(const char *text, snd_fabric_options *o, const char *op)
{
	uint64_t checks;
	if (!parse_number(text, &checks) || checks > INT32_MAX)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SPIN_BUDGET: checks \"%s\": want a number from 0 to 2^31-1", op, text);
	if (o->spin_budget == 0)
		o->spin_budget = checks == 0 ? SND_NO_SPIN : (uint32_t)checks;
	return SND_SUCCESS;
}

static const struct setting {
	const char *name;
	snd_status (*read)(const char *text, snd_fabric_options *o, const char *op);
} settings[] = {
	{"SOFTND_EXEC", read_executor},
	{"SOFTND_INTEGRITY", read_integrity},
	{"SOFTND_WEAK_ORDER", read_weak_order},
	{"SOFTND_SPIN_BUDGET", read_spin_budget},
};

snd_status snd_apply_environment(snd_fabric_options *o, const char *op)
{
	snd_status s = SND_SUCCESS;
	for (size_t i = 0; s == SND_SUCCESS && i < sizeof settings / sizeof settings[0]; i++) {
		const char *text = getenv(settings[i].name);
		if (text != NULL && *text != 0)
			s = settings[i].read(text, o, op);
	}
	return s;
}

snd_status snd_read_receive_timeout(int64_t *limit, const char *op)
{
	const char *text = getenv("SOFTND_RECEIVE_TIMEOUT");
	int64_t duration = INT64_MAX;
	if (text == NULL || *text == 0)
		return SND_SUCCESS;
	if (strcmp(text, "unlimited") != 0 && !snd_parse_duration(text, &duration))
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RECEIVE_TIMEOUT: time-out \"%s\": want a duration such as 500ms or 10s, 0, or unlimited", op, text);
	if (duration < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RECEIVE_TIMEOUT: receive time-out of %s: want 0 or more", op, text);
	*limit = duration == INT64_MAX ? SND_FOREVER : duration;
	return SND_SUCCESS;
}

snd_status snd_read_flag(const char *name, bool *flag, const char *op)
{
	const char *text = getenv(name);
	*flag = text != NULL && strcmp(text, "1") == 0;
	if (text == NULL || *text == 0 || *flag || strcmp(text, "0") == 0)
		return SND_SUCCESS;
	return snd_fail(SND_INVALID_PARAMETER, "%s: %s: invalid value \"%s\": want 0 or 1", op, name, text);
}

const char *snd_value_of(const char *name)
{
	const char *text = getenv(name);
	return text != NULL ? text : "";
}

int64_t snd_number_in(const char *name)
{
	const char *text = getenv(name);
	int64_t n = 0;
	if (text == NULL || *text == 0)
		return -1;
	for (; is_digit(*text) && n <= INT32_MAX; text++)
		n = n * 10 + (*text - '0');
	return *text == 0 && n <= INT32_MAX ? n : -1;
}
