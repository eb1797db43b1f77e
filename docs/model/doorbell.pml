/*
 * The doorbell, for Spin, with a producer that is not fenced (ring.NewProducer). The end of a connection has the same
 * handshake: teardown.pml.
 *
 * A producer stores a message into a ring entry and then loads the doorbell's armed word, to see whether it has to wake a
 * waiter. Without a fence the store is a plain one, which may wait in the store buffer during the load. So the waiter calls
 * HeavyGlobal between its store to armed and its last check of the ring entry.
 *
 *	producer                    waiter (Arm, check, Sleep)
 *	--------                    --------------------------
 *	slot := message             ticket := rings
 *	armed?  ring:               armed := 1
 *	  armed := 2 if it is 1     HeavyGlobal
 *	  rings++, wake all         check the slot
 *	  armed := 0 if it is 2     sleep, if rings is the ticket
 *	                            last waiter to leave: armed := 0
 *
 * Producers store through first-in-first-out store buffers, as on amd64. All other stores are exchanges or atomic
 * operations. HeavyGlobal also empties the buffer of its caller, so the waiter has no store that must wait for that.
 * HeavyGlobal passes the producers one after the other, each at some moment within the call. It passes all processes; the
 * model has those that matter.
 *
 * Sizes, to be given with -D: N producers and waiters (1), waiter i waits for producer i, and all have one doorbell;
 * MESSAGES of each producer (2).
 *
 * Variants, in which all claims hold:
 *	STRICT  the store to the slot empties the buffer, as with a fenced producer; HeavyGlobal is not needed
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_HEAVY       HeavyGlobal
 *	CHECK_EARLY    the check before HeavyGlobal
 *	HEAVY_EARLY    HeavyGlobal before the store of armed
 *	LOAD_FIRST     the order of the producer's store and load
 *	NO_RING        the ring
 *	NO_TICKET      the futex's comparison with the ticket
 *	DISARM_ALWAYS  the count of waiters (N=2)
 *	WAKE_ONE       that a ring wakes all (N=2)
 *
 * Not modelled: time-outs of a sleep, so no run passes only because a waiter wakes up after a while; the ring's size and
 * wrapping; a death during a ring; processes that HeavyGlobal does not reach, for which a producer is fenced (STRICT).
 * The word NeedWakeup of a queue pair has the same form.
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#ifndef N
#define N 1
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

byte slot[N];			/* the newest message: its number, from 1 */
byte armed;			/* 0, 1, or 2: a producer is ringing */
byte rings;			/* the word of the futex */

#define BUFFERED	MESSAGES
chan buffer[N] = [BUFFERED] of { byte };	/* stores to the producer's slot, the only plain ones */
#define FENCE(p)	empty(buffer[p])

active proctype Buffers() {
endEmpty:
	do
	:: d_step { nempty(buffer[0]) -> buffer[0]?slot[0] }
#if N > 1
	:: d_step { nempty(buffer[1]) -> buffer[1]?slot[1] }
#endif
	od
}

inline heavyglobal() {
	i = 0;
	do
	:: i < N -> atomic { FENCE(i) -> i++ }
	:: else -> break
	od;
	i = 0
}

#ifdef STRICT
#define STORE(n)	d_step { FENCE(me) -> slot[me] = n }
#else
#define STORE(n)	buffer[me]!n
#endif

#if defined(NO_HEAVY) || defined(HEAVY_EARLY)
#define BARRIER	skip
#else
#define BARRIER	heavyglobal()
#endif

/* ---- Claims ----------------------------------------------------------------------------------------------------- */

/* D1_woken. When no process can take a further step, no waiter sleeps while there is a message for it. */
hidden byte D1_woken;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5, S6;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- The doorbell ---------------------------------------------------------------------------------------------- */

byte taken[N];			/* messages that the waiter has found */
bool asleep[N];			/* it is in the futex */
byte waiters;			/* how many have armed the doorbell and not left it; guarded by lock */
bool lock;

proctype Producer(byte me) {
	byte n, a;
	do
	:: n < MESSAGES ->
		n++;
#ifdef LOAD_FIRST
		a = armed;
		STORE(n);
#else
		STORE(n);
		d_step { a = armed; SEEN(S1, a == 0 && len(buffer[me]) > 0); SEEN(S2, a == 2) };
#endif
		if
		:: a != 0 ->
#ifndef NO_RING
			d_step { FENCE(me) -> if :: armed == 1 -> armed = 2 :: else fi };
			rings++;
			d_step {
				SEEN(S3, asleep[me]);
				asleep[0] = false;
#if N > 1 && !defined(WAKE_ONE)
				asleep[1] = false
#endif
			};
			d_step { if :: armed == 2 -> armed = 0 :: else -> SEEN(S4, armed == 1) fi };
#endif
			a = 0
		:: else
		fi
	:: else -> break
	od
}

inline check() {
	d_step {
		if :: slot[me] > taken[me] -> taken[me] = slot[me]; found = true :: else fi
	}
}

proctype Waiter(byte me) {
	byte i, ticket;
	bool found;
	do
	:: taken[me] < MESSAGES ->
		d_step { !lock -> lock = true; waiters++ };
		ticket = rings;
#ifdef HEAVY_EARLY
		heavyglobal();
#endif
		armed = 1;					/* an exchange */
#ifdef CHECK_EARLY
		check();
#endif
		BARRIER;
		lock = false;
#ifndef CHECK_EARLY
		check();
#endif
		if
		:: !found ->
#ifdef NO_TICKET
			asleep[me] = true;
#else
			d_step { if :: rings == ticket -> asleep[me] = true :: else -> SEEN(S5, true) fi };
#endif
endAsleep:
			!asleep[me]
		:: else -> SEEN(S6, true)
		fi;
		d_step { !lock -> lock = true; waiters-- };
#ifdef DISARM_ALWAYS
		armed = 0;
#else
		if :: waiters == 0 -> armed = 0 :: else fi;
#endif
		lock = false;
		found = false; ticket = 0;
		check();						/* each wait checks once more when it has left */
		found = false
	:: else -> break
	od
}

/* The state when no process can take a step. */
active proctype Quiet() {
endNever:
	timeout ->
	d_step {
		CLAIM(D1_woken, !(asleep[0] && slot[0] > taken[0]));
#if N > 1
		CLAIM(D1_woken, !(asleep[1] && slot[1] > taken[1]));
#endif
		skip
	}
}

init {
	byte p;
	atomic {
		do
		:: p < N -> run Producer(p); run Waiter(p); p++
		:: else -> break
		od
	}
}

