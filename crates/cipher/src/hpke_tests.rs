//! Tests of hybrid public key encryption (HPKE) with the test vectors of RFC 9180, appendix A.1, and with messages that
//! a receiver must refuse.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn private(hex: &str) -> PrivateKey {
    PrivateKey::new(Secret::take(&mut bytes(hex)).unwrap()).unwrap()
}

const INFO: &str = "4f6465206f6e2061204772656369616e2055726e";
const PLAIN: &str = "4265617574792069732074727574682c20747275746820626561757479";
const PSK: &str = "0247fd33b913760fa1fa51e1892d9f307fbe65eb171e8132c2af18555a738b82";
const PSK_ID: &str = "456e6e796e20447572696e206172616e204d6f726961";

/// Vectors of one mode: the ephemeral, receiver's and sender's private keys, the associated values of messages, and
/// numbers of messages with their ciphertexts.
struct Vector {
    has_psk: bool,
    ephemeral: &'static str,
    receiver: &'static str,
    sender: Option<&'static str>,
    encapsulated: &'static str,
    messages: [(u64, &'static str); 6],
}

const VECTORS: [Vector; 4] = [
    Vector {
        has_psk: false,
        ephemeral: "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
        receiver: "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        sender: None,
        encapsulated: "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
        messages: [
            (0, "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"),
            (1, "af2d7e9ac9ae7e270f46ba1f975be53c09f8d875bdc8535458c2494e8a6eab251c03d0c22a56b8ca42c2063b84"),
            (2, "498dfcabd92e8acedc281e85af1cb4e3e31c7dc394a1ca20e173cb72516491588d96a19ad4a683518973dcc180"),
            (4, "583bd32bc67a5994bb8ceaca813d369bca7b2a42408cddef5e22f880b631215a09fc0012bc69fccaa251c0246d"),
            (
                255,
                "7175db9717964058640a3a11fb9007941a5d1757fda1a6935c805c21af32505bf106deefec4a49ac38d71c9e0a",
            ),
            (
                256,
                "957f9800542b0b8891badb026d79cc54597cb2d225b54c00c5238c25d05c30e3fbeda97d2e0e1aba483a2df9f2",
            ),
        ],
    },
    Vector {
        has_psk: true,
        ephemeral: "463426a9ffb42bb17dbe6044b9abd1d4e4d95f9041cef0e99d7824eef2b6f588",
        receiver: "c5eb01eb457fe6c6f57577c5413b931550a162c71a03ac8d196babbd4e5ce0fd",
        sender: None,
        encapsulated: "0ad0950d9fb9588e59690b74f1237ecdf1d775cd60be2eca57af5a4b0471c91b",
        messages: [
            (0, "e52c6fed7f758d0cf7145689f21bc1be6ec9ea097fef4e959440012f4feb73fb611b946199e681f4cfc34db8ea"),
            (1, "49f3b19b28a9ea9f43e8c71204c00d4a490ee7f61387b6719db765e948123b45b61633ef059ba22cd62437c8ba"),
            (2, "257ca6a08473dc851fde45afd598cc83e326ddd0abe1ef23baa3baa4dd8cde99fce2c1e8ce687b0b47ead1adc9"),
            (4, "a71d73a2cd8128fcccbd328b9684d70096e073b59b40b55e6419c9c68ae21069c847e2a70f5d8fb821ce3dfb1c"),
            (
                255,
                "55f84b030b7f7197f7d7d552365b6b932df5ec1abacd30241cb4bc4ccea27bd2b518766adfa0fb1b71170e9392",
            ),
            (
                256,
                "c5bf246d4a790a12dcc9eed5eae525081e6fb541d5849e9ce8abd92a3bc1551776bea16b4a518f23e237c14b59",
            ),
        ],
    },
    Vector {
        has_psk: false,
        ephemeral: "ff4442ef24fbc3c1ff86375b0be1e77e88a0de1e79b30896d73411c5ff4c3518",
        receiver: "fdea67cf831f1ca98d8e27b1f6abeb5b7745e9d35348b80fa407ff6958f9137e",
        sender: Some("dc4a146313cce60a278a5323d321f051c5707e9c45ba21a3479fecdf76fc69dd"),
        encapsulated: "23fb952571a14a25e3d678140cd0e5eb47a0961bb18afcf85896e5453c312e76",
        messages: [
            (0, "5fd92cc9d46dbf8943e72a07e42f363ed5f721212cd90bcfd072bfd9f44e06b80fd17824947496e21b680c141b"),
            (1, "d3736bb256c19bfa93d79e8f80b7971262cb7c887e35c26370cfed62254369a1b52e3d505b79dd699f002bc8ed"),
            (2, "122175cfd5678e04894e4ff8789e85dd381df48dcaf970d52057df2c9acc3b121313a2bfeaa986050f82d93645"),
            (4, "dae12318660cf963c7bcbef0f39d64de3bf178cf9e585e756654043cc5059873bc8af190b72afc43d1e0135ada"),
            (
                255,
                "55d53d85fe4d9e1e97903101eab0b4865ef20cef28765a47f840ff99625b7d69dee927df1defa66a036fc58ff2",
            ),
            (
                256,
                "42fa248a0e67ccca688f2b1d13ba4ba84755acf764bd797c8f7ba3b9b1dc3330326f8d172fef6003c79ec72319",
            ),
        ],
    },
    Vector {
        has_psk: true,
        ephemeral: "14de82a5897b613616a00c39b87429df35bc2b426bcfd73febcb45e903490768",
        receiver: "cb29a95649dc5656c2d054c1aa0d3df0493155e9d5da6d7e344ed8b6a64a9423",
        sender: Some("fc1c87d2f3832adb178b431fce2ac77c7ca2fd680f3406c77b5ecdf818b119f4"),
        encapsulated: "820818d3c23993492cc5623ab437a48a0a7ca3e9639c140fe1e33811eb844b7c",
        messages: [
            (0, "a84c64df1e11d8fd11450039d4fe64ff0c8a99fca0bd72c2d4c3e0400bc14a40f27e45e141a24001697737533e"),
            (1, "4d19303b848f424fc3c3beca249b2c6de0a34083b8e909b6aa4c3688505c05ffe0c8f57a0a4c5ab9da127435d9"),
            (2, "0c085a365fbfa63409943b00a3127abce6e45991bc653f182a80120868fc507e9e4d5e37bcc384fc8f14153b24"),
            (4, "000a3cd3a3523bf7d9796830b1cd987e841a8bae6561ebb6791a3f0e34e89a4fb539faeee3428b8bbc082d2c1a"),
            (
                255,
                "576d39dd2d4cc77d1a14a51d5c5f9d5e77586c3d8d2ab33bdec6379e28ce5c502f0b1cbd09047cf9eb9269bb52",
            ),
            (
                256,
                "13239bab72e25e9fd5bb09695d23c90a24595158b99127505c8a9ff9f127e0d657f71af59d67d4f4971da028f9",
            ),
        ],
    },
];

#[test]
fn all_modes_encrypt_and_decrypt_as_published() {
    let (psk, psk_id) = (Secret::take(&mut bytes(PSK)).unwrap(), bytes(PSK_ID));
    for vector in VECTORS {
        let shared = vector.has_psk.then_some((&psk, &psk_id[..]));
        let (ephemeral, receiver) = (private(vector.ephemeral), private(vector.receiver));
        let sender = vector.sender.map(private);
        let by = Authentication { key: sender.as_ref(), shared };
        let (encapsulated, sending) =
            Context::sender_with(&receiver.public(), &bytes(INFO), &by, &ephemeral).unwrap();
        assert_eq!(encapsulated.to_string(), vector.encapsulated);
        let key = sender.as_ref().map(PrivateKey::public);
        let by = Authentication { key: key.as_ref(), shared };
        let receiving = Context::receiver(&receiver, &encapsulated, &bytes(INFO), &by).unwrap();
        let (sending, receiving) = (sending.expand().unwrap(), receiving.expand().unwrap());
        for (number, expected) in vector.messages {
            let (expected, associated) = (bytes(expected), format!("Count-{number}"));
            let mut data = bytes(PLAIN);
            let tag = sending.seal(number, associated.as_bytes(), &mut data).unwrap();
            assert_eq!([&data[..], &tag].concat(), expected);
            receiving.open(number, associated.as_bytes(), &mut data, &tag).unwrap();
            assert_eq!(data, bytes(PLAIN));
        }
    }
}

/// Tries to decrypt a message as a receiver with this private key, info and authentication; returns whether that
/// succeeds.
fn opens(
    receiver: &PrivateKey,
    encapsulated: &PublicKey,
    info: &[u8],
    by: &Authentication<'_, PublicKey>,
    (number, data, tag): (u64, &[u8], &Tag),
) -> bool {
    let mut data = data.to_vec();
    let context = Context::receiver(receiver, encapsulated, info, by);
    context.and_then(|context| context.expand()?.open(number, b"a", &mut data, tag)).is_ok()
}

#[test]
fn whatever_differs_makes_another_key() {
    let [receiver, other, sender] = [(); 3].map(|()| PrivateKey::random().unwrap());
    let secrets = [(); 2].map(|()| Secret::random(32).unwrap());
    let shared = Some((&secrets[0], &b"id"[..]));
    let by = Authentication { key: Some(&sender), shared };
    let (encapsulated, context) = Context::sender(&receiver.public(), b"info", &by).unwrap();
    let mut data = *b"some rows";
    let tag = context.expand().unwrap().seal(7, b"a", &mut data).unwrap();
    let message = (7, &data[..], &tag);
    let (key, wrong) = (sender.public(), other.public());
    let by = Authentication { key: Some(&key), shared };
    assert!(opens(&receiver, &encapsulated, b"info", &by, message));
    assert!(!opens(&other, &encapsulated, b"info", &by, message));
    assert!(!opens(&receiver, &wrong, b"info", &by, message));
    assert!(!opens(&receiver, &encapsulated, b"inf", &by, message));
    assert!(!opens(&receiver, &encapsulated, b"info", &by, (8, message.1, message.2)));
    for by in [
        Authentication { key: Some(&wrong), shared },
        Authentication { key: None, shared },
        Authentication { key: Some(&key), shared: None },
        Authentication { key: Some(&key), shared: Some((&secrets[1], b"id")) },
        Authentication { key: Some(&key), shared: Some((&secrets[0], b"ix")) },
        Authentication { key: None, shared: None },
    ] {
        assert!(!opens(&receiver, &encapsulated, b"info", &by, message), "{by:?}");
    }
}

#[test]
fn keys_that_agree_on_nothing_are_refused() {
    let nobody = Authentication { key: None, shared: None };
    for public in [[0; KEY_BYTES], std::array::from_fn(|at| u8::from(at == 0))] {
        let error = Context::sender(&PublicKey(public), b"", &nobody).map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        let nobody = Authentication { key: None, shared: None };
        let key = PrivateKey::random().unwrap();
        assert!(Context::receiver(&key, &PublicKey(public), b"", &nobody).is_err());
    }
    let long = [0; INFO_BYTES_MAX + 1];
    assert!(Context::sender(&PrivateKey::random().unwrap().public(), &long, &nobody).is_err());
}

#[test]
fn keys_are_written_and_read() {
    let key = PrivateKey::random().unwrap();
    let again = PrivateKey::new(Secret::take(&mut key.bytes().to_vec()).unwrap()).unwrap();
    assert_eq!(again.public(), key.public());
    assert_eq!(PublicKey::from_hex(&key.public().to_string()), Some(key.public()));
    for text in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
        assert_eq!(PublicKey::from_hex(text), None);
    }
    assert!(PrivateKey::new(Secret::random(31).unwrap()).is_err());
    let shown = format!("{key:?}");
    assert!(!shown.contains(&hex(key.bytes())) && shown.contains(&key.public().to_string()));
}
