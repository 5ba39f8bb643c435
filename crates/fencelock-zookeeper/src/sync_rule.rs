//! From which moment on the session timeout certainly counts: the proof behind [`Client::confirm`](crate::Client::confirm), and its
//! premises.
//!
//! # False proofs
//!
//! The leader, and the leader alone, lets a session expire. A client talks to one server, mostly a follower, and that answers pings and
//! reads *by itself*: the follower notes a contact of the session, and answers. The leader is notified later, or never. When only the link
//! between follower and leader is cut, the follower answers pings until it gives up. Meanwhile the leader counts the session out, and the
//! next in the queue is granted the lock. So the time of an answered ping, or of a read, is no moment from which the timeout counts.
//!
//! An answered `sync` does come from the leader, and is no such moment either: no `sync` touches the leader's book of sessions.
//!
//! # The proof
//!
//! Names first: *T* is the session timeout as granted; a *tick* is the servers' unit of time (`tickTime`); a *contact* is a request or a ping
//! that was answered.
//!
//! 1. The follower notes each contact when it takes the request in. That is not before the client sent it.
//! 2. The leader pings each follower every half tick. The follower's answer carries every session with a contact since the one before.
//! 3. When the leader takes that answer in, it moves the end of each of those sessions to *now* + T, rounded up.
//! 4. Follower and leader talk over one TCP connection, and each of them handles what comes in its order. A `sync` travels there too: from the
//!    follower to the leader, and back.
//!
//! Let a contact be sent at *t* and answered at *a*, and a `sync` be sent at *s* ≥ *a* + T/4, to the same server on the same connection. If
//! T/4 is at least one tick, then between *a* and *s* there is a moment at which the follower answered a ping of the leader, with half a
//! tick to spare. That answer carries the session (1, 2), and went out before the `sync` did. Once the `sync` is answered, the leader has
//! taken in everything in front of it (4). So it has moved the end of the session, at a time of its own that is later than *t*, to that
//! time + T (3). **From then on, this leader does not let the session expire before *t* + T.**
//!
//! Hence the rule: *t* is the sending time of the newest contact that was answered at least T/4 before the sending of a `sync` that was
//! answered. [`Client::confirmed`](crate::Client::confirmed) is that *t*.
//!
//! To open or continue a session, the follower asks the leader, which moves the session's end before the client is answered. So the sending
//! time of the first frame of a connection is confirmed without any `sync`; and like any other contact it may be proven again later.
//! Contacts of a former connection are forgotten: they went by another server's messages.
//!
//! # Time
//!
//! Every sending time is taken before the bytes are handed to the socket, every answering time after they were read. A process that is paused,
//! in between or anywhere else, therefore errs on the side that does no harm: a contact seems to have been sent earlier than it was, which only
//! lessens *t*; its answer seems to have come later, and the `sync` to have been sent earlier, which only makes the quarter between them longer
//! than it had to be. An answer that lay in the socket's buffer while the process slept counts from the moment when it was read. Nothing is
//! concluded from the time at which an answer came, except that it was before the moment at which it was read.
//!
//! All times are those of one clock of this process ([`Config::clock`](crate::Config::clock)); the leader's clock only has to run at the same
//! speed, since it is durations that are compared.
//!
//! # Premises
//!
//! - **T is at least four ticks**, so that T/4 ≥ one tick. Servers grant as little as two (`minSessionTimeout`, unless configured), and the
//!   protocol does not show the length of a tick: a user of this proof has to know it, and to ask for enough.
//! - **No ping from the leader to the follower is late by more than T/4 − tick/2**: with four ticks, half a tick; with twenty, four and a half.
//! - **A leader that was deposed stops answering within the margin.** A new leader counts every session anew from its own beginning, at the
//!   earliest when it was elected; the old one notices that it has lost its followers when nothing has come from them for `syncLimit` ticks, at
//!   about the time at which they notice the same, and it looks once per tick. For what one may still believe in between, a user of *t* + T
//!   subtracts a margin of **at least one tick**.
//! - **No leader is paused for longer than the margin and cut off while it is.** Woken, it may answer a `sync` before it knows.
//! - **All servers grant the same timeout**, as they do when they have the same limits. A session that is continued on a server with a
//!   lower limit has that one's timeout from then on: the belief before was then too long, and [`Client::session`](crate::Client::session)
//!   says so after [`Event::Reconnected`](crate::Event::Reconnected).
//! - Clocks run at the same speed, up to a part of the margin, and the servers keep to their own protocol.
//!
//! Beyond that no client can know better. That is what a fencing token is for: a resource that refuses older tokens needs no belief about time.
//!
//! # How often
//!
//! With a `sync` every T/6 the newest contact that is old enough is the `sync` two rounds before: confirmed moments lag by a third of T and a
//! round trip. While requests go on anyway, they are contacts too, and the lag is a quarter.
