"""The address by which a client is counted."""

from __future__ import annotations

import ipaddress

IPV6_NETWORK = 64
"""Bits of an IPv6 address that name a network: one client has all addresses in it."""
MAX_NAME = 64
"""Characters of what a proxy calls a client, if that is no address."""


def client_address(client: tuple[str, int] | None) -> str:
    """The IPv4 address of a client, or its IPv6 network.

    >>> client_address(("192.0.2.7", 5000)), client_address(("2001:db8::1", 5000)), client_address(None)
    ('192.0.2.7', '2001:db8::/64', '')
    >>> client_address(("::ffff:192.0.2.7", 5000)), len(client_address(("x" * 60_000, 0)))
    ('192.0.2.7', 64)
    """
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0][:MAX_NAME]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
