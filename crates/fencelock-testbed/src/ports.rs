//! Reserved ports, which no other process of the test bed takes.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The range is below the ephemeral ports: outgoing connections may take any ephemeral port.
const PORTS: std::ops::Range<u16> = 21_001..31_999;

/// A free TCP port, by default of 127.0.0.1. No other process that reserves ports in this way takes it.
///
/// The reservation is an abstract socket, so that the kernel ends it with this process.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    /// `None` for a server on a host of its own, where no other process takes ports.
    _reserved: Option<UnixListener>,
}

impl Port {
    /// Reserves a free port.
    pub fn reserve() -> io::Result<Self> {
        // The numbers that this process has tried. No number is used again soon: a client may still look for the last server there.
        static TRIED: AtomicU16 = AtomicU16::new(0);
        // Processes start looking at different places, so that they seldom meet.
        let start = std::process::id() * 37;
        let numbers = (PORTS.end - PORTS.start) / 2;
        for _ in 0..numbers {
            let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
            let number = PORTS.start + ((start + tried) % u32::from(numbers)) as u16 * 2;
            match Self::take(number) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                taken => return taken,
            }
        }
        Err(io::Error::new(ErrorKind::AddrInUse, format!("no port of {PORTS:?} is free")))
    }

    /// A port on a host of its own.
    pub(crate) fn elsewhere(host: IpAddr, number: u16) -> Self {
        Self { address: (host, number).into(), _reserved: None }
    }

    fn take(number: u16) -> io::Result<Self> {
        let name = format!("fencelock-testbed-port-{number}");
        let reserved = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?;
        let address = (Ipv4Addr::LOCALHOST, number).into();
        // A connection tests the port. A listener would be inherited by a child that another thread starts meanwhile; until that
        // child runs its program, the next listener would be refused.
        match TcpStream::connect(address) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(ErrorKind::AddrInUse.into()),
        }
        Ok(Self { address, _reserved: Some(reserved) })
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// The address of a server on this port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PATIENCE, wait_until};

    #[test]
    fn a_port_that_was_given_back_does_not_come_again_soon() {
        let first = Port::reserve().unwrap().number();
        assert!((0..100).all(|_| Port::reserve().unwrap().number() != first));
    }

    #[test]
    fn a_port_is_reserved_once_and_free_again_when_dropped() {
        let (one, two) = (Port::reserve().unwrap(), Port::reserve().unwrap());
        assert_ne!(one.number(), two.number());
        assert_eq!(Port::take(one.number()).unwrap_err().kind(), ErrorKind::AddrInUse);
        let number = one.number();
        drop(one);
        // A child that another test starts meanwhile may keep the reservation for a moment.
        assert!(wait_until(PATIENCE, || Port::take(number).is_ok()));
    }
}
