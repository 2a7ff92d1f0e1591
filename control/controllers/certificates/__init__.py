from control.controllers.certificates.approver import CertificateApprover
from control.controllers.certificates.cleaner import CertificateCleaner
from control.controllers.certificates.signer import CertificateSigner

__all__ = ["CertificateApprover", "CertificateCleaner", "CertificateSigner"]
