/*
 * The doorbell, for Spin, with shm.Producer.Relax. The end of a connection rests on Relax too: ending.pml.
 *
 * A producer stores a message into a slot and then loads a word of the other side: the doorbell's armed word, to see
 * whether somebody has to be woken. Relax
 * makes the store a plain one, which may wait in the store buffer while the word is loaded. So the other side, which
 * stores that word and then looks at the slot for the last time, calls HeavyGlobal in between.
 *
 *	producer                    sleeper (Arm, look, Sleep)
 *	--------                    --------------------------
 *	slot := message             ticket := rings so far
 *	armed?  ring:               armed := 1
 *	  armed := 2 if it is 1     HeavyGlobal
 *	  rings++, wake all         look at the slot
 *	  armed := 0 if it is 2     sleep, if rings is the ticket
 *	                            nobody else sleeps: armed := 0
 *
 * Producers store through first-in-first-out store buffers, as on amd64; everything else that is stored here is stored
 * by an exchange or an atomic operation. (No store of the sleeper's has to wait for that: the barrier
 * empties the buffer of its caller too.) HeavyGlobal passes the producers one after the other, each at some moment
 * within the call. It takes in all processes; the model holds those that matter.
 *
 * Sizes, to be given with -D: N producers and sleepers (1), sleeper i waits for producer i, and all have one bell;
 * MESSAGES of each producer (2).
 *
 * Variants, all correct:
 *	STRICT  the store to the slot empties the buffer, as it does without Relax; HeavyGlobal is not needed
 *
 * Mutations:
 *	NO_HEAVY, LOOK_EARLY (the look comes before HeavyGlobal), HEAVY_EARLY (HeavyGlobal comes before the store),
 *	NO_RING NO_TICKET HEAR_FIRST; with N=2: DISARM_ALWAYS WAKE_ONE
 *
 * README.md says what each of them means. WITNESS asserts that certain situations never come up, and each of these
 * assertions has to fail.
 */

#ifndef N
#define N 1
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

byte slot[N];			/* the newest message: its number, from 1 */
byte armed;			/* 0, 1, or 2: somebody is ringing */
byte rings;			/* the word of the futex */

#define BUFFERED	MESSAGES
chan buffer[N] = [BUFFERED] of { byte };	/* stores to the process's slot; it stores nothing else plainly */
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

inline heavyforall() {
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
#define BARRIER	heavyforall()
#endif

/* ---- What is claimed ------------------------------------------------------------------------------------------- */

/* D1_woken. When nothing goes on any more, nobody sleeps while there is a message for him. */
hidden byte D1_woken;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef WITNESS
hidden byte W1, W2, W3, W4, W5, W6;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- The doorbell ---------------------------------------------------------------------------------------------- */

byte taken[N];			/* messages that the sleeper has found */
bool asleep[N];			/* it is in the futex */
byte sleepers;			/* how many have armed the bell and not left it; guarded by lock */
bool lock;

proctype Producer(byte me) {
	byte n, a;
	do
	:: n < MESSAGES ->
		n++;
#ifdef HEAR_FIRST
		a = armed;
		STORE(n);
#else
		STORE(n);
		d_step { a = armed; SEEN(W1, a == 0 && len(buffer[me]) > 0); SEEN(W2, a == 2) };
#endif
		if
		:: a != 0 ->
#ifndef NO_RING
			d_step { FENCE(me) -> if :: armed == 1 -> armed = 2 :: else fi };
			rings++;
			d_step {
				SEEN(W3, asleep[me]);
				asleep[0] = false;
#if N > 1 && !defined(WAKE_ONE)
				asleep[1] = false
#endif
			};
			d_step { if :: armed == 2 -> armed = 0 :: else -> SEEN(W4, armed == 1) fi };
#endif
			a = 0
		:: else
		fi
	:: else -> break
	od
}

inline look() {
	d_step {
		if :: slot[me] > taken[me] -> taken[me] = slot[me]; found = true :: else fi
	}
}

proctype Sleeper(byte me) {
	byte i, ticket;
	bool found;
	do
	:: taken[me] < MESSAGES ->
		d_step { !lock -> lock = true; sleepers++ };
		ticket = rings;
#ifdef HEAVY_EARLY
		heavyforall();
#endif
		armed = 1;					/* an exchange */
#ifdef LOOK_EARLY
		look();
#endif
		BARRIER;
		lock = false;
#ifndef LOOK_EARLY
		look();
#endif
		if
		:: !found ->
#ifdef NO_TICKET
			asleep[me] = true;
#else
			d_step { if :: rings == ticket -> asleep[me] = true :: else -> SEEN(W5, true) fi };
#endif
endAsleep:
			!asleep[me]
		:: else -> SEEN(W6, true)
		fi;
		d_step { !lock -> lock = true; sleepers-- };
#ifdef DISARM_ALWAYS
		armed = 0;
#else
		if :: sleepers == 0 -> armed = 0 :: else fi;
#endif
		lock = false;
		found = false; ticket = 0;
		look();						/* as every wait does when it has left */
		found = false
	:: else -> break
	od
}

/* What is left when nobody can take a step. */
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
		:: p < N -> run Producer(p); run Sleeper(p); p++
		:: else -> break
		od
	}
}

