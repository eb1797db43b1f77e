/*
 * The teardown of a connection, for Spin: the last check for messages, detaching, and which side frees which memory
 * (endpoint/cm_connection.go, endpoint/internal/cm/record.go, cm_teardown.go).
 *
 * Two sides share a connection record, which is the active side's memory. Each side has a shared queue-pair state (here
 * sharedqp), which is its own memory. Either side aborts or disconnects gracefully, and either process may die at any step.
 * In the end all three are freed.
 *
 *	a side that ends it (terminate, beginDisconnect)   a side that sends             a side that copies
 *	------------------------------------------------   -------------                 ------------------
 *	state := aborted, or disconnected[me] := 1         slot := message               hazard := token
 *	finishTeardown: the peer's hazard set? try again   state open, disconnected 0?   state open, disconnected 0?
 *	        HeavyGlobal                                it is delivered               copy
 *	        take the messages in the peer's ring                                     hazard := 0
 *	        cancel the rest;
 *	detachIfDone: detached[me] := DetachedQP, unless a graceful disconnect is in progress;
 *	release: passive: wait for DetachedQP of the active side, detached := DetachedRecord
 *	        active: wait for DetachedRecord of the passive side, free the record;
 *	free:   free the shared queue-pair state
 *
 * A survivor that finds a death marks the connection lost, finishes its teardown and detaches (peerDied,
 * handlePeerDeath). Then it acknowledges the death, and the dead side's memory is given back, in one step here;
 * reclaim.pml has those steps.
 *
 * ep.mu, Provider.mu and Record.mu are locks of a process. Each side has three threads: one with its endpoint, one
 * that does its deferred work, and its housekeeper.
 *
 * The store to the slot is a plain one (ring.NewProducer, not fenced), which waits in the store buffer of its process. The
 * other stores here are atomic operations, except the one that clears the hazard: if that is late, the owner only waits longer.
 *
 * One of the sides sends one message or makes one copy, and may have ended the connection before it can.
 *
 * The proof in short: a side stores detached after its last access to the peer's state, and frees its own state when it
 * has read the peer's detached. The passive side stores DetachedRecord as its last access to the record, and the active
 * side frees the record after that.
 *
 * Variants, in which all claims hold:
 *	STRICT  the store to the slot empties the buffer, as with a fenced producer; HeavyGlobal is not needed
 *	FORCED  no side disconnects gracefully, which keeps the other variants small
 *	CALLS   a call on the connector of the passive side asks for the state or aborts at any time, without ep.mu; no side
 *	        sends or copies
 *	MORTAL  the process of side MORTAL (0 is the active one) may die; it is the one that sends or copies
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_HEAVY                  HeavyGlobal in leavePeerState
 *	CHECK_EARLY, HEAVY_EARLY  the order of the change of state, HeavyGlobal and the check
 *	STATE_FIRST               that the sender loads the state after the push
 *	NO_LAST_CHECK             deliverRemaining
 *	DISCONNECT_UNSEEN         the load of Disconnected in FarEnd.IsOpen
 *	NO_HAZARD                 the load of the peer's hazard in leavePeerState
 *	FREE_AT_ONCE              that release waits for the other side
 *	LEAVE_ONCE                DetachedRecord: the active side frees the record after DetachedQP
 *	BOTH_LAST                 that the passive side waits for DetachedQP only
 *	DETACH_EARLY              that detachIfDone waits until the endpoint is flushed
 *	WHILE_CLOSING             that detachIfDone waits during a graceful disconnect
 *	SPLIT                     that release stores released and DetachedRecord with Record.mu held
 *	CHECK_FIRST               that state loads released after the state
 *	NO_DEATH_CHECK            that release does not wait for a dead process (MORTAL)
 *	NO_PEER_DEATH             that the endpoint finishes its teardown before the death is acknowledged (MORTAL)
 *	NO_LOST                   that Record.Write and release store nothing once the connection is lost (MORTAL)
 *	TWO_STEPS                 that release removes the connection and stores DetachedRecord in one step for
 *	                          Provider.releaseDead (MORTAL)
 *
 * Not modelled: the phases before the connection is established; the drain of an Invalidate in flushRequests; checks of
 * the ring without the endpoint's lock, whose result is a hint; several messages or copies. Before the connection is
 * established, the state of a canceled Connect may be freed while the passive side still loads its reason. It stores
 * nothing there, and does not read the ring.
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#define ACTIVE	0
#define PASSIVE	1

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

bool record = true;		/* its memory is the active side's */
bool sharedqp[2] = true;		/* the shared queue-pair states, each its own side's memory, with ring and hazard */
bool aborted;			/* the record's state; else it is established */
bool disconnected[2];
byte detached[2];
byte slot[2];			/* 1: there is a message in the ring of the side */
bool hazard[2];

#define DETACHED_QP	1
#define DETACHED_RECORD	2

chan buffer[2] = [1] of { byte };	/* stores to the side's slot */
#define FENCE(p)	empty(buffer[p])

active proctype Buffers() {
endEmpty:
	do
	:: d_step { nempty(buffer[0]) -> buffer[0]?slot[0] }
	:: d_step { nempty(buffer[1]) -> buffer[1]?slot[1] }
	od
}

/* ---- Each process ---------------------------------------------------------------------------------------------- */

mtype = { connected, peergone, closing, failed, closed };
mtype now[2] = connected;
bool epmu[2], pmu[2];		/* locks; Record.mu is held for one step at a time */
bool releasedpeer[2], settled[2], detachdone[2];
bool known[2] = true;		/* Provider.conns has the connection */
bool lost[2], released[2];

byte does[2];			/* the request that it has yet to make */
#define SENDS	1
#define COPIES	2

bool dead[2];			/* its process has ended */
bool gone[2];			/* it has been marked dead */
bool acknowledged[2];		/* by this side */

/* ---- Claims ----------------------------------------------------------------------------------------------------- */

byte delivered[2];		/* 1: the Send of the side counted as delivered */
byte found[2];			/* 1: the side's last check has found a message */

/* E1_found. A Send that counted as delivered is found by the last check.
 * E2_touch. No side stores into memory that has been given back, or decides by a value loaded from there.
 * E3_freed. When no process can take a further step, the record and both queue-pair states have been given back.
 * E4_alone. No copy is made into the memory of a side that has canceled its receives and requests. */
hidden byte E1_found, E2_touch, E3_freed, E4_alone;
#define CLAIM(name, what)	name = (what); assert(name)

#define RECORD	CLAIM(E2_touch, record)
#define FAR	CLAIM(E2_touch, sharedqp[1 - me])

#ifdef REACH
hidden byte S1, S2, S3, S4, S5, S6, S7;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- Stores and loads ------------------------------------------------------------------------------------------ */

#ifdef STRICT
#define STORE(n)	d_step { FENCE(me) -> slot[me] = n }
#else
#define STORE(n)	buffer[me]!n
#endif

inline heavyglobal() {
	FENCE(0);
	FENCE(1)
}

#if defined(NO_HEAVY) || defined(HEAVY_EARLY)
#define BARRIER	skip
#else
#define BARRIER	heavyglobal()
#endif

#ifdef NO_LOST
#define LOST	false
#else
#define LOST	lost[me]
#endif
#define WRITABLE	(!LOST && !released[me])

/* Record.Write: an atomic operation on the record, with Record.mu. */
#define WRITE(store)	d_step { FENCE(me) -> if :: WRITABLE -> RECORD; store :: else fi }

#define GONE	(lost[me] || gone[1 - me])

/* window.FarEnd.IsOpen. */
inline isopen() {
	d_step { RECORD; open = !aborted };
#if !defined(DISCONNECT_UNSEEN) && !defined(FORCED)
	if :: open -> d_step { RECORD; open = !disconnected[1 - me] } :: else fi
#endif
}

/* ---- The endpoint, with ep.mu ---------------------------------------------------------------------------------- */

inline check() {
	d_step { FAR; found[me] = slot[1 - me] }
}

/* queuePair.leavePeerState, and the rest of finishTeardown. It may have to be tried again. */
inline finishTeardown() {
	if
	:: !releasedpeer[me] ->
#ifdef NO_HAZARD
		wait = false;
#else
		d_step { wait = !GONE; if :: wait -> FAR; wait = hazard[1 - me]; SEEN(S4, wait) :: else fi };
#endif
		if
		:: !wait ->
#ifdef CHECK_EARLY
			check();
#endif
			BARRIER;
#if !defined(CHECK_EARLY) && !defined(NO_LAST_CHECK)
			check();
#endif
			d_step { releasedpeer[me] = true; settled[me] = true; SEEN(S3, found[me] > delivered[1 - me]); CLAIM(E1_found, found[me] >= delivered[1 - me]) }
		:: else
		fi;
		wait = false
	:: else
	fi;
	detachifdone()
}

#ifdef WHILE_CLOSING
#define OVER	true
#else
#define OVER	now[me] != closing
#endif

#ifdef DETACH_EARLY
#define SETTLED	true
#else
#define SETTLED	settled[me]
#endif

/* queuePair.detachIfDone, and connection.detach but for its deferred work. */
inline detachifdone() {
	if
	:: SETTLED && OVER && !detachdone[me] ->
		WRITE(detached[me] = DETACHED_QP);
		d_step { detachdone[me] = true }
	:: else
	fi
}

/* queuePair.terminate. */
inline terminate() {
	now[me] = failed;
#ifdef HEAVY_EARLY
	heavyglobal();
#endif
	WRITE(aborted = true);
	finishTeardown()
}

/* queuePair.beginDisconnect. */
inline begindisconnect() {
	byPeer = now[me] == peergone;
	now[me] = closing;
#ifdef HEAVY_EARLY
	heavyglobal();
#endif
	WRITE(disconnected[me] = true);
	finishTeardown();
	if :: byPeer -> part() :: else fi;
	byPeer = false
}

inline part() {
	now[me] = closed;
	detachifdone()
}

#define UP	(now[me] == connected || now[me] == peergone || now[me] == closing)

/* queuePair.progressLocked. */
inline progresslocked() {
	if
	:: UP ->
#ifndef FORCED
		d_step { RECORD; disconnectednow = disconnected[1 - me] };
#endif
		if
		:: disconnectednow && now[me] == connected -> now[me] = peergone
		:: disconnectednow && now[me] == closing -> part()
		:: else
		fi;
		if
		:: now[me] != closed ->
			d_step { if :: GONE -> ended = true :: else -> RECORD; ended = aborted fi };
			if
			:: ended ->
				now[me] = failed;
				d_step { FAR };		/* the reason that the peer has left */
				finishTeardown()
			:: else
			fi
		:: else
		fi;
		disconnectednow = false; ended = false
	:: else
	fi
}

#ifdef MORTAL
#define LOCK(when)	d_step { (when) && !epmu[me] -> epmu[me] = true }
#define UNLOCK	epmu[me] = false
#else
#define LOCK(when)	(when)		/* no other thread takes the lock */
#define UNLOCK	skip
#endif

proctype Endpoint(byte me) {
	bool open, wait, byPeer, disconnectednow, ended;
	{
		do
		:: LOCK(does[me] == SENDS && now[me] == connected) ->
			does[me] = 0;
#ifdef STATE_FIRST
			isopen();
			if :: open -> STORE(1) :: else fi;
#else
			STORE(1);
			isopen();
#endif
			d_step {
				if
				:: open ->
					SEEN(S1, len(buffer[me]) > 0);
					delivered[me] = 1;
					CLAIM(E1_found, !releasedpeer[1 - me] || found[1 - me] == 1)
				:: else -> SEEN(S2, true)
				fi;
				open = false
			};
			UNLOCK
		:: LOCK(does[me] == COPIES && (now[me] == connected || now[me] == peergone)) ->
			d_step { does[me] = 0; hazard[me] = true };
			isopen();
			if
			:: open -> d_step { FAR; CLAIM(E4_alone, !releasedpeer[1 - me]) }
			:: else
			fi;
			d_step { hazard[me] = false; open = false };
			UNLOCK
#ifndef FORCED
		:: LOCK(now[me] == connected || now[me] == peergone) -> begindisconnect(); UNLOCK
#endif
		:: LOCK(UP) -> terminate(); UNLOCK
		:: LOCK(UP && (disconnected[1 - me] && now[me] != peergone || aborted || GONE)) -> progresslocked(); UNLOCK
		:: LOCK((!UP || now[me] == closing) && !settled[me] && (!hazard[1 - me] || GONE)) -> finishTeardown(); UNLOCK
		:: !UP && settled[me] -> break
		od
	} unless { dead[me] }
}

/* ---- Deferred work ------------------------------------------------------------------------------------------------ */

#if defined(FREE_AT_ONCE)
#define PARTED	true
#elif defined(LEAVE_ONCE)
#define PARTED	theirs != 0
#elif defined(BOTH_LAST)
#define PARTED	theirs == DETACHED_RECORD
#else
#define PARTED	(me == ACTIVE -> theirs == DETACHED_RECORD : theirs != 0)
#endif

#ifdef NO_DEATH_CHECK
#define DIED	false
#else
#define DIED	GONE
#endif

proctype Deferred(byte me) {
	byte theirs;
	bool was;
endKept:
	detachdone[me];
	{
		/* connection.release */
		do
		:: d_step { theirs = detached[1 - me]; was = record };
			if
			:: d_step { DIED -> SEEN(S5, !lost[me]); SEEN(S6, !was) }; break
			:: else ->
				d_step { CLAIM(E2_touch, was) };
				if
				:: PARTED -> break
				:: else -> DIED || detached[1 - me] != theirs
				fi
			fi
		od;
		theirs = 0; was = false;
#ifdef TWO_STEPS
		known[me] = false;
		if :: me == PASSIVE -> WRITE(detached[me] = DETACHED_RECORD) :: else fi;
		released[me] = true;
#else
		d_step { !pmu[me] -> pmu[me] = true };
		known[me] = false;
#ifdef SPLIT
		if :: me == PASSIVE -> WRITE(detached[me] = DETACHED_RECORD) :: else fi;
		released[me] = true;
#else
		released[me] = true;		/* with Record.mu, which state does not take */
		d_step { if :: me == PASSIVE && !LOST -> RECORD; detached[me] = DETACHED_RECORD :: else fi };
#endif
		pmu[me] = false;
#endif
		if
		:: me == ACTIVE -> d_step { RECORD; record = false }
		:: else
		fi;
		/* queuePair.free */
		sharedqp[me] = false
	} unless { dead[me] }
}

/* ---- The other threads ----------------------------------------------------------------------------------------- */

/* A call on the connector. */
proctype Connector(byte me) {
	bool was, over;
	{
		if
		:: WRITE(aborted = true)
#ifdef CHECK_FIRST
		:: over = released[me];
			d_step { was = record };
#else
		:: d_step { was = record };
			over = released[me];
#endif
			d_step { SEEN(S7, over && !was); CLAIM(E2_touch, over || GONE || was) }
		:: skip
		fi
	} unless { dead[me] }
}

#ifdef MORTAL
/* Provider.releaseDead for the other side, and the acknowledgement. */
proctype Patrol(byte me) {
	byte n;
	bool open, wait, disconnectednow, ended, mine;
endWell:
	gone[1 - me];
	{
		d_step { !pmu[me] -> mine = known[me] };
		if
		:: mine ->
			lost[me] = true;
#ifndef NO_PEER_DEATH
			LOCK(true);
			if :: !UP -> finishTeardown() :: now[me] == closing -> finishTeardown() :: else fi;
			progresslocked();
			UNLOCK
#endif
		:: else
		fi;
		acknowledged[me] = true
	} unless { dead[me] }
}

/* When the other side has acknowledged the death, the memory of the dead one is given back. */
proctype Death() {
	if
	:: dead[MORTAL] = true;
		gone[MORTAL] = true;
		acknowledged[1 - MORTAL];
		d_step { sharedqp[MORTAL] = false; if :: MORTAL == ACTIVE -> record = false :: else fi }
	:: skip
	fi
}
#endif

/* The state when no process can take a step. */
active proctype Quiet() {
endNever:
	timeout -> d_step { CLAIM(E3_freed, !record && !sharedqp[ACTIVE] && !sharedqp[PASSIVE]) }
}

init {
	byte me;
	atomic {
#if defined(MORTAL)
		if :: does[MORTAL] = SENDS :: does[MORTAL] = COPIES fi;
		run Patrol(1 - MORTAL);
		run Death();
#elif defined(CALLS)
		run Connector(PASSIVE);
#else
		if
		:: does[ACTIVE] = SENDS
		:: does[ACTIVE] = COPIES
		:: does[PASSIVE] = SENDS
		:: does[PASSIVE] = COPIES
		fi;
#endif
		do
		:: me < 2 ->
			run Endpoint(me); run Deferred(me);
			me++
		:: else -> break
		od
	}
}
