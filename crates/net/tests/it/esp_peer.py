"""The receiving end of the tunnels of service.rs: scapy's IPsec, on Python's `cryptography`.

Reads lines of key, extended sequence number, outer IP packet, inner IP packet, the last three hexadecimal; decrypts and compares.
"""

import sys

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation

associations = {}
count = 0
for line in sys.stdin:
    key, esn, outer, inner = line.split()
    outer, inner = bytes.fromhex(outer), bytes.fromhex(inner)
    kind = IP if outer[0] >> 4 == 4 else IPv6
    packet = kind(outer)
    tunnel = kind(src=packet.src, dst=packet.dst)
    name = (key, esn, kind)
    if name not in associations:
        associations[name] = SecurityAssociation(
            ESP,
            spi=0x12345678,
            crypt_algo="AES-GCM",
            crypt_key=bytes.fromhex(key),
            esn_en=esn == "1",
            esn=0,
            tunnel_header=tunnel,
        )
    decrypted = associations[name].decrypt(packet)
    if bytes(decrypted) != inner:
        sys.exit(f"{bytes(decrypted).hex()}\nis not\n{inner.hex()}")
    count += 1
print(f"{count} decrypted")
